module substrate.run/examples/counter

go 1.24
