module substrate.run/e2e/programs/keeper

go 1.24
