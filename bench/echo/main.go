// The upstream of the call benchmark: answers every request with one small JSON document. Compiled, so that it is not
// what is measured. Prints a line of JSON when ready, ends when standard input does.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("{\"upstream\": %d}\n", listener.Addr().(*net.TCPAddr).Port)
	body := []byte(`{"expression":"6*7","result":42}`)
	answer := func(writer http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(io.Discard, request.Body)
		writer.Header().Set("content-type", "application/json")
		writer.Header().Set("content-length", strconv.Itoa(len(body)))
		_, _ = writer.Write(body)
	}
	go func() { _ = http.Serve(listener, http.HandlerFunc(answer)) }()
	_, _ = io.Copy(io.Discard, os.Stdin)
}
