module postgres_jobs/example

go 1.19

require (
	github.com/lib/pq v1.10.7
	postgres_jobs v0.1.0
)

// Not released yet. `go mod tidy` writes go.sum.
replace postgres_jobs => ../
