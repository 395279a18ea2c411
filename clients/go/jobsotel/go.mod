module postgres_jobs/jobsotel

go 1.19

require (
	go.opentelemetry.io/otel v1.1.0
	go.opentelemetry.io/otel/sdk v1.1.0
	go.opentelemetry.io/otel/trace v1.1.0
	postgres_jobs v0.1.0
)

replace postgres_jobs => ../
