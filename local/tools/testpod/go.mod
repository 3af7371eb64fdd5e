module substrate.run/tools/testpod

go 1.26.0
