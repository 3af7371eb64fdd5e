module substrate.run/e2e/programs/glutton

go 1.24
