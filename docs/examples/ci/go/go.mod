module download

go 1.19
