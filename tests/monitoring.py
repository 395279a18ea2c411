"""What the files of ops/monitoring/ say, against what jobs.metrics() says. The suite `monitoring`
runs it.

monitoring.py queries DIR ROLE    every query runs as ROLE and gives the values of jobs.metrics()
monitoring.py complete DIR        both exporters have every metric, as it is, and no other
monitoring.py scraped PAGE        the page of metrics has the values of jobs.metrics()
monitoring.py get URL PAGE        fetches a page as soon as somebody answers
monitoring.py names DIR           dashboard and alerts use only names that exist
monitoring.py annotations DIR     the SQL of the alerts' descriptions runs, as their test expects
monitoring.py rules DIR           the expressions of the dashboard, as rules for promtool

Where the database is: PGHOST, PGDATABASE and so on, for psql.
"""

import csv
import io
import json
import math
import re
import subprocess
import sys
import time
import urllib.request

import yaml

# The one metric that postgres_exporter.yml cannot call by its name, and why is said there.
RENAMED = {"jobs_queue_state_jobs": "jobs_queue_jobs"}
# Ages go on between two looks.
AGES = {"jobs_queue_oldest_available_age_seconds", "jobs_queue_counted_age_seconds", "jobs_forward_behind_seconds"}


def psql(statement, role="postgres"):
    command = ["psql", "-X", "--csv", "-v", "ON_ERROR_STOP=1", "-U", role, "-c", statement]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"as {role}: {done.stderr.strip()}")
    return list(csv.DictReader(io.StringIO(done.stdout)))


def key(name, labels):
    return name, tuple(sorted(labels.items()))


def truth():
    """The samples of jobs.metrics(): {(name, labels): value}."""
    database = psql("SELECT current_database() AS name")[0]["name"]
    rows = psql("SELECT metric, labels, value FROM jobs.metrics()")
    return {key(row["metric"], {"datname": database, **json.loads(row["labels"])}): float(row["value"]) for row in rows}


def described():
    """What jobs.metrics() says of each metric: {name: (type, labels, help)}."""
    rows = psql("SELECT metric, type, help, labels FROM jobs.metrics()")
    return {row["metric"]: (row["type"], frozenset({"datname", *json.loads(row["labels"])}), row["help"]) for row in rows}


def load(path):
    with open(path) as file:
        return yaml.safe_load(file)


def only(what, mapping, *allowed):
    for name in mapping:
        if name not in allowed:
            sys.exit(f"{what}: nobody reads {name}")


class Query:
    """A query of one of the files, its labels and metrics: {column: (name, type, labels, help)}."""

    def __init__(self, name, text):
        self.name, self.text, self.metrics = name, text, {}

    def samples(self, role):
        rows = psql(self.text, role)
        if not rows:
            sys.exit(f"{self.name}: no rows")
        wanted = set(self.metrics) | {label for _, _, labels, _ in self.metrics.values() for label in labels}
        if set(rows[0]) != wanted:
            sys.exit(f"{self.name}: columns {sorted(set(rows[0]) ^ wanted)} are in the result or in the declaration, but not in both")
        found = {}
        for row in rows:
            for column, (name, _, labels, _) in self.metrics.items():
                if row[column] != "":
                    found[key(name, {label: row[label] for label in labels})] = float(row[column])
        return found


def postgres_exporter(directory):
    queries = []
    for namespace, entry in load(f"{directory}/postgres_exporter.yml").items():
        only(namespace, entry, "query", "master", "metrics")
        query = Query(namespace, entry["query"])
        columns = {name: options for item in entry["metrics"] for name, options in item.items()}
        labels = frozenset(name for name, options in columns.items() if options["usage"] == "LABEL")
        for column, options in columns.items():
            only(f"{namespace}.{column}", options, "usage", "description")
            if column not in labels:
                name = f"{namespace}_{column}"
                query.metrics[column] = (RENAMED.get(name, name), options["usage"].lower(), labels, options["description"])
        queries.append(query)
    return queries


def sql_exporter(directory):
    collector = load(f"{directory}/jobs.collector.yml")
    only("the collector", collector, "collector_name", "metrics", "queries")
    queries = {}
    for entry in collector["queries"]:
        only("a query", entry, "query_name", "query")
        queries[entry["query_name"]] = Query(entry["query_name"], entry["query"])
    for metric in collector["metrics"]:
        only(metric["metric_name"], metric, "metric_name", "type", "help", "key_labels", "values", "query_ref")
        (column,) = metric["values"]
        queries[metric["query_ref"]].metrics[column] = (metric["metric_name"], metric["type"], frozenset(metric["key_labels"]), metric["help"])
    return list(queries.values())


EXPORTERS = {"postgres_exporter.yml": postgres_exporter, "jobs.collector.yml": sql_exporter}


def compare(what, found, expected):
    for sample in sorted(set(found) | set(expected)):
        if sample not in found:
            sys.exit(f"{what} does not have {sample}")
        if sample not in expected:
            sys.exit(f"{what} has {sample}, which jobs.metrics() does not have")
        tolerance = 60 if sample[0] in AGES else abs(expected[sample]) * 1e-12
        if not abs(found[sample] - expected[sample]) <= tolerance:
            sys.exit(f"{what}: {sample} is {found[sample]}, and {expected[sample]} by jobs.metrics()")


def queries(directory, role):
    for file, read in EXPORTERS.items():
        found = {}
        for query in read(directory):
            found.update(query.samples(role))
        compare(file, found, truth())


def complete(directory):
    expected = described()
    for file, read in EXPORTERS.items():
        found = {}
        for query in read(directory):
            for name, type, labels, help in query.metrics.values():
                if name in found:
                    sys.exit(f"{file} has {name} twice")
                found[name] = (type, labels, help)
        for name in sorted(set(found) | set(expected)):
            if found.get(name) != expected.get(name):
                sys.exit(f"{file}, {name}: {found.get(name)}; by jobs.metrics(): {expected.get(name)}")


def scraped(page):
    found = {}
    with open(page) as file:
        for line in file:
            sample = re.match(r'(jobs_\w+)\{(.*)\} (\S+)$', line)
            if sample:
                labels = {n: json.loads(f'"{v}"') for n, v in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', sample[2])}
                labels.pop("server")
                value = float(sample[3])
                if not math.isnan(value):
                    found[key(RENAMED.get(sample[1], sample[1]), labels)] = value
            elif line.startswith("jobs_"):
                sys.exit(f"not understood: {line}")
    compare("the page", found, truth())


def get(url, page):
    for _ in range(600):
        try:
            with urllib.request.urlopen(url, timeout=10) as answer, open(page, "wb") as file:
                file.write(answer.read())
                return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"{url} does not answer")


def dashboard(directory):
    """The expressions of the dashboard."""
    with open(f"{directory}/grafana.json") as file:
        panels = json.load(file)["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def variables(directory):
    with open(f"{directory}/grafana.json") as file:
        return {variable["name"]: variable.get("query") for variable in json.load(file)["templating"]["list"]}


def alerts(directory):
    return [rule["expr"] for group in load(f"{directory}/alerts.yml")["groups"] for rule in group["rules"]]


# What stands in an expression and is no name of a metric or label.
PROMQL = {"sum", "max", "rate", "increase", "time", "absent", "by", "on", "unless", "or", "and", "histogram_quantile"}
# The label that Prometheus adds to whatever it scrapes.
INSTANCE = {"instance"}


def names(directory):
    known = {name: labels | INSTANCE for name, (_, labels, _) in described().items()}
    known.update({alias: known[name] for alias, name in RENAMED.items()})
    every_label = set().union(*known.values())
    expressions = dashboard(directory) + alerts(directory)
    used = set()
    for expression in expressions:
        for name, matchers in re.findall(r"(\w+)\{([^}]*)\}", expression):
            for label in re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', matchers):
                if label not in known.get(name, ()):
                    sys.exit(f"{name} has no label {label}: {expression}")
        bare = re.sub(r'"[^"]*"|\$\w+|\b\d+[smhd]?\b', " ", expression)
        for word in re.findall(r"[A-Za-z_]\w*", bare):
            if word in known:
                used.add(word)
            elif word not in PROMQL and word not in every_label:
                sys.exit(f"there is no {word}: {expression}")
    for name, query in variables(directory).items():
        values = isinstance(query, dict) and re.fullmatch(r"label_values\((\w+), (\w+)\)", query["query"])
        if name != "datasource" and not (values and values[2] in known.get(values[1], ())):
            sys.exit(f"variable {name}: {query}")
    for variable in {v for e in expressions for v in re.findall(r"\$(\w+)", e)} - {"__rate_interval"}:
        if variable not in variables(directory):
            sys.exit(f"there is no variable {variable}")
    if unseen := set(known) - used:
        sys.exit(f"nobody looks at {sorted(unseen)}")


def annotations(directory):
    tests = [test for group in load(f"{directory}/alerts.test.yml")["tests"] for test in group["alert_rule_test"]]
    said = [alert["exp_annotations"]["description"] for test in tests for alert in test["exp_alerts"]]
    statements = [statement for text in said for statement in re.findall(r"\bSELECT [^;]*;", text)]
    if len(statements) < 10:
        sys.exit(f"these are too few: {statements}")
    for statement in statements:
        psql(f"BEGIN; {statement} ROLLBACK;")


def rules(directory):
    found = [{"record": f"dashboard:{n}", "expr": expr.replace("$__rate_interval", "5m")} for n, expr in enumerate(dashboard(directory))]
    if not found:
        sys.exit("there are no expressions")
    print(yaml.dump({"groups": [{"name": "dashboard", "rules": found}]}))


if __name__ == "__main__":
    {"queries": queries, "complete": complete, "scraped": scraped, "get": get, "names": names, "annotations": annotations, "rules": rules}[sys.argv[1]](*sys.argv[2:])
