"""What makes vectors of texts: an ONNX model, an endpoint; and the file that keeps vectors."""
