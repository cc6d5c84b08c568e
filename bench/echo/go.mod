module toolcrib.dev/bench/echo

go 1.26
