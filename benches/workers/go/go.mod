module postgres_jobs/bench

go 1.19

require (
	github.com/lib/pq v1.10.7
	postgres_jobs v0.1.0
)

// Debian's golang-github-lib-pq-dev, as in the driver of the conformance suite.
replace github.com/lib/pq => /usr/share/gocode/src/github.com/lib/pq

replace postgres_jobs => ../../../clients/go
