"""The Airflow DAG under a real scheduler, triggerer, DAG processor and API server, over a home of their own."""

import json
import secrets
import socket
import time
import urllib.error
import urllib.parse
import urllib.request

from checks import expect
from processes import Program, finished, home_of, leave
from world import EXAMPLES, KNOWN, NOTE, World, fails_of_missing_source, lost_answer, same_run_again

DAG = "taxi_tables"
PIPELINES = ("zone_hour", "zone_hour_by_file")
START_SECONDS = 180
RUN_SECONDS = 300

# Airflow's scheduler takes a task for failed, and tries it again, that goes on before it has heard that the worker which
# deferred it has ended: a second or so, at this setting. Refrain gives the second try the same run, so nothing is lost; but
# the checks count tries, so that here no run is that short.
WORKER_LOOKS_SECONDS = 1
SHORTEST_WAIT_SECONDS = 8


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Airflow:
    """An Airflow of its own, spoken to by its REST API."""

    def __init__(self, proxy):
        self.home, self.env = home_of("airflow")
        self.base = f"http://127.0.0.1:{free_port()}"
        self.programs = []
        self.token = None
        refrain = urllib.parse.urlsplit(proxy.url)
        connection = {"conn_type": "http", "schema": "http", "host": refrain.hostname, "port": refrain.port}
        self.env |= {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW_CONN_REFRAIN": json.dumps(connection),
            "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.base}/execution/",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(16),
            "AIRFLOW__API__BASE_URL": self.base,
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            # Only what the checks ask for is run: no month of today's.
            "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False",
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": str(WORKER_LOOKS_SECONDS),
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        }

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        status, told = finished(["airflow", "db", "migrate"], self.env, self.home, START_SECONDS)
        expect(status, 0, f"airflow db migrate: {told}")
        port = self.base.rsplit(":", 1)[1]
        for command in (
            ["api-server", "--host", "127.0.0.1", "--port", port, "--workers", "1"],
            ["scheduler", "--skip-serve-logs"],
            ["triggerer", "--skip-serve-logs"],
            ["dag-processor"],
        ):
            self.programs.append(Program(["airflow", *command], self.env, self.home, self.home / f"{command[0]}.log"))
        self.until(self.healthy, START_SECONDS, "Airflow is up")
        self.until(lambda: self.call("GET", f"/dags/{DAG}")[0] == 200, START_SECONDS, "the DAG is parsed")
        expect(self.call("PATCH", f"/dags/{DAG}", {"is_paused": False})[0], 200, "the DAG is not paused")

    def __exit__(self, *_):
        for program in reversed(self.programs):
            program.end()
        leave(self.home)

    def call(self, method, path, body=None):
        """The status and the parsed body of one call of the REST API; 0 where nobody answers."""
        if self.token is None:
            with urllib.request.urlopen(f"{self.base}/auth/token", timeout=30) as answer:
                self.token = json.loads(answer.read())["access_token"]
        data = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json", "accept": "application/json"}
        request = urllib.request.Request(f"{self.base}/api/v2{path}", data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as e:
            return e.code, json.loads(e.read() or b"null")

    def healthy(self):
        try:
            health = self.call("GET", "/monitor/health")[1]
        except OSError:
            return False
        return all(health[part]["status"] == "healthy" for part in ("scheduler", "triggerer", "dag_processor"))

    def until(self, holds, seconds, what):
        end = time.monotonic() + seconds
        while not (found := holds()):
            for program in self.programs:
                expect(program.process.poll(), None, f"{program.process.args[1]} runs on")
            if time.monotonic() > end:
                raise AssertionError(f"{what}: not in {seconds} s; {self.seen()}")
            time.sleep(0.5)
        return found

    def seen(self):
        """What the logs end with."""
        logs = sorted(self.home.glob("*.log"))
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-1500:]}" for log in logs)

    def trigger(self, day, **more):
        """Makes a DAG run by hand, with this logical date: it is for the month before it. Gives its id."""
        status, run = self.call("POST", f"/dags/{DAG}/dagRuns", {"logical_date": f"{day}T00:00:00Z", **more})
        expect(status, 200, f"the DAG run is made: {run}")
        return run["dag_run_id"]

    def ended(self, dag_run):
        """The state in which a DAG run ends, as it is now."""

        def state():
            found = self.call("GET", f"/dags/{DAG}/dagRuns/{urllib.parse.quote(dag_run)}")[1]["state"]
            return found in ("success", "failed") and found

        return self.until(state, RUN_SECONDS, f"{dag_run} ends")

    def tasks(self, dag_run):
        """The mapped tasks of a DAG run by map index."""
        status, found = self.call("GET", f"/dags/{DAG}/dagRuns/{urllib.parse.quote(dag_run)}/taskInstances")
        expect(status, 200, f"the tasks of {dag_run}: {found}")
        return sorted(found["task_instances"], key=lambda task: task["map_index"])

    def log_of(self, dag_run, map_index=0):
        """All tries of a task, as Airflow wrote them."""
        folder = self.home / "logs" / f"dag_id={DAG}" / f"run_id={dag_run}"
        files = sorted(folder.glob(f"**/map_index={map_index}/*"))
        return "\n".join(file.read_text(errors="replace") for file in files)

    def clear(self, dag_run):
        """Clears the failed tasks of a DAG run."""
        body = {"dry_run": False, "dag_run_id": dag_run, "only_failed": True, "reset_dag_runs": True}
        status, answer = self.call("POST", f"/dags/{DAG}/clearTaskInstances", body)
        expect(status, 200, f"the tasks are cleared: {answer}")
        expect(len(answer["task_instances"]), len(PIPELINES), f"the cleared tasks: {answer}")

    def backfill(self, first, last, **more):
        """Backfills months, and waits for the end; its DAG runs."""
        body = {"dag_id": DAG, "from_date": f"{first}-01T00:00:00Z", "to_date": f"{last}-01T00:00:00Z", **more}
        status, made = self.call("POST", "/backfills", body)
        expect(status, 200, f"the backfill is made: {made}")
        self.until(
            lambda: self.call("GET", f"/backfills/{made['id']}")[1]["completed_at"], RUN_SECONDS, f"backfill {made['id']} ends"
        )
        runs = self.call("GET", f"/dags/{DAG}/dagRuns?limit=100")[1]["dag_runs"]
        return [run for run in runs if run["run_type"] == "backfill"]


def checks(proxy, sample):
    def runs(pipeline):
        return [run for run in world.runs() if run["pipeline"] == pipeline]

    def success():
        dag_run = airflow.trigger("2024-02-10")
        expect(airflow.ended(dag_run), "success", f"the DAG run: {airflow.log_of(dag_run)}")
        world.has("2024-01")
        expect(sorted(run["pipeline"] for run in world.runs()), sorted(PIPELINES), "the runs, one for each mapped task")
        for at in range(len(PIPELINES)):
            log = airflow.log_of(dag_run, at)
            expect("Pausing task as DEFERRED" in log and "Trigger fired event" in log, True, f"the task was deferred: {log}")
        expect(proxy.waits >= len(PIPELINES), True, "the triggerer waited")
        return f"{len(PIPELINES)} mapped tasks, {NOTE}, {proxy.waits} waits by the triggerer"

    def time_out():
        proxy.swallow_next()
        dag_run = airflow.trigger("2024-03-10")
        expect(airflow.ended(dag_run), "success", f"the DAG run: {airflow.log_of(dag_run)}")
        world.has("2024-01", "2024-02")
        tries = sorted(task["try_number"] for task in airflow.tasks(dag_run))
        expect(tries, [1, 2], "the tries of the tasks")
        return f"task retried: {lost_answer(world, proxy.submissions)}"

    def failure():
        world.take_away("2024-03")
        dag_run = airflow.trigger("2024-04-10")
        expect(airflow.ended(dag_run), "failed", "the DAG run")
        log = airflow.log_of(dag_run)
        fails_of_missing_source(world, "2024-03", log)
        failed = [run["id"] for run in world.runs() if run["state"] == "failed"]
        expect(len(failed), len(PIPELINES), "the runs that failed")
        expect([task["try_number"] for task in airflow.tasks(dag_run)], [1, 1], "tries, since a failed run is not retried")
        world.bring_back("2024-03")
        airflow.clear(dag_run)
        expect(airflow.ended(dag_run), "success", f"the DAG run after it was cleared: {airflow.log_of(dag_run)}")
        world.has(*KNOWN)
        return [same_run_again(world, run_id) for run_id in failed][0]

    def backfill():
        made = airflow.backfill("2024-01", "2024-03")
        expect([run["state"] for run in made], ["success"] * 3, f"the DAG runs: {airflow.seen()}")
        expect(len(world.runs()), 3 * len(PIPELINES), "runs: one for each month and pipeline")
        world.has(*KNOWN)
        return f"3 DAG runs, a run for each month and pipeline, {NOTE}"

    def repeated():
        version, submissions = world.has(*KNOWN), len(proxy.submissions)
        made = airflow.backfill("2024-01", "2024-03", reprocess_behavior="completed")
        expect([run["state"] for run in made], ["success"] * 3, f"the DAG runs: {airflow.seen()}")
        again = proxy.submissions[submissions:]
        expect([s.replayed for s in again], [True] * 3 * len(PIPELINES), "Idempotent-Replayed of its submissions")
        expect(len(world.runs()), 3 * len(PIPELINES), "runs, none of them new")
        expect(world.has(*KNOWN), version, "the table's version")
        return "all submissions replayed, no new run, same version"

    def on_purpose():
        version = world.has(*KNOWN)
        conf = {"again": "corrected files"}
        airflow.backfill("2024-01", "2024-03", reprocess_behavior="completed", dag_run_conf=conf)
        expect(len(world.runs()), 6 * len(PIPELINES), "runs, as many new ones")
        outcomes = {p["outcome"] for run in runs("zone_hour")[:3] for p in world.run_of(run["id"])["partitions"]}
        expect(outcomes, {"unchanged"}, "their outcomes")
        expect(world.has(*KNOWN), version, "the table's version")
        return "runs of its own: unchanged, same version"

    proxy.shortest_wait_seconds = SHORTEST_WAIT_SECONDS
    with Airflow(proxy) as airflow:
        with World(sample) as world:
            proxy.leads_to(world)
            yield "success", success
            yield "time-out, then the task's retry", time_out
            yield "failed, then cleared", failure
        with World(sample) as world:
            proxy.leads_to(world)
            yield "backfill of three months", backfill
            yield "the backfill repeated", repeated
            yield "the backfill again on purpose", on_purpose
