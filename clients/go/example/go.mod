module postgres_jobs/example

go 1.19

require (
	github.com/lib/pq v1.10.7
	postgres_jobs v0.1.0
)

// Debian's golang-github-lib-pq-dev, so that the example needs no network.
replace github.com/lib/pq => /usr/share/gocode/src/github.com/lib/pq

replace postgres_jobs => ../
