module keeper

go 1.24
