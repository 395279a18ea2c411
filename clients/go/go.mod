module postgres_jobs

go 1.19
