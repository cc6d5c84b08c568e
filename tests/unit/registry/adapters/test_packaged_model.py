"""The packaged model gives the same vectors on every CPU."""

from importlib.resources import as_file, files

from onnx_weights import products


def test_no_product_of_bytes_can_saturate_on_a_processor_without_vnni() -> None:
    """Without VNNI the processor adds two products of an unsigned and a signed byte in 16 bits: 255 * w1 + 255 * w2 stays
    within them only for weights of at most seven bits. Inputs are unsigned in onnxruntime's dynamic quantisation."""
    with as_file(files("toolcrib_registry") / "model") as folder:
        found = products(folder / "model.onnx")

    weights = {name: values for product in found for name, values in product.signed.items()}
    # six layers: query, key and value in one product or in three, the output, and two wide ones
    assert len(found) >= 24
    assert sum(values.size for values in weights.values()) > 10_000_000
    assert {name: values.shape for product in found for name, values in product.unsigned.items()} == {}
    wide = {
        name: (int(v.min()), int(v.max())) for name, v in weights.items() if v.min() < -64 or v.max() > 64
    }
    assert wide == {}
