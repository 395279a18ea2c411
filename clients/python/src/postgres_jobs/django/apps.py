from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "postgres_jobs.django"
    label = "postgres_jobs"
    verbose_name = "Jobs"
