"""Why the engine did not start, from what it says and from its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spark.failed_start import explained, said_since, why

EXITED = "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."
NO_HADOOP = """\
WARNING: Using incubator modules: jdk.incubator.vector
Exception in thread "main" org.apache.spark.SparkException: When running with master 'yarn' either HADOOP_CONF_DIR or \
YARN_CONF_DIR must be set in the environment.
\tat org.apache.spark.deploy.SparkSubmitArguments.error(SparkSubmitArguments.scala:640)
"""
NO_MEMORY = """\
Error occurred during initialization of VM
Initial heap size set to a larger value than the maximum heap size
"""
NO_MASTER = """\
2026-11-19T20:32:10,278 WARN org.apache.spark.deploy.client.StandaloneAppClient$ClientEndpoint: Failed to connect to \
master 127.0.0.1:1
org.apache.spark.SparkException: Exception thrown in awaitResult:\x20
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:53)
Caused by: java.io.IOException: Failed to connect to /127.0.0.1:1
\tat org.apache.spark.network.client.TransportClientFactory.createClient(TransportClientFactory.java:304)
\t... 4 more
Caused by: io.netty.channel.AbstractChannel$AnnotatedConnectException: finishConnect(..) failed with error(-111): \
Connection refused: /127.0.0.1:1
Caused by: java.net.ConnectException: finishConnect(..) failed with error(-111): Connection refused
\tat io.netty.channel.unix.Errors.newConnectException0(Errors.java:166)
2026-11-19T20:33:10,212 ERROR org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend: Application has been \
killed. Reason: All masters are unresponsive! Giving up.
"""
STOPPED = """\
An error occurred while calling None.org.apache.spark.sql.classic.SparkSession.
: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.
This stopped SparkContext was created at:
"""
NO_KUBERNETES = """\
An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: io.fabric8.kubernetes.client.KubernetesClientException: An error has occurred.
\tat io.fabric8.kubernetes.client.KubernetesClientException.launderThrowable(KubernetesClientException.java:129)
Caused by: java.io.IOException: Connection refused: /127.0.0.1:1
\t... 20 more
Caused by: java.net.ConnectException: Connection refused
"""
BAD_CONF = """\
An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: java.lang.NumberFormatException: Size must be specified as bytes (b), but was 1x.
\tat org.apache.spark.network.util.JavaUtils.byteStringAs(JavaUtils.java:287)
"""
RETRIES = """\
2026-11-19T20:51:31,351 INFO org.apache.spark.deploy.yarn.Client: Requesting a new application
2026-11-19T20:51:35,351 INFO org.apache.hadoop.ipc.Client: Retrying connect to server: 127.0.0.1/127.0.0.1:1. Already \
tried 3 time(s)
"""


@pytest.mark.parametrize(
    ("error", "log", "master", "cause", "advice"),
    [
        (EXITED, NO_HADOOP, "yarn", "either HADOOP_CONF_DIR or YARN_CONF_DIR must be set", "export HADOOP_CONF_DIR="),
        (EXITED, NO_MEMORY, "local[2]", "Initial heap size set to a larger value", "read "),
        (
            STOPPED,
            NO_MASTER,
            "spark://127.0.0.1:1",
            "Failed to connect to /127.0.0.1:1: Connection refused",
            "nc -vz 1",
        ),
        (NO_KUBERNETES, "", "k8s://https://10.0.0.1:6443", "Connection refused: /127.0.0.1:1", "nc -vz 10.0.0.1 6443;"),
        (BAD_CONF, NO_MASTER, "local[2]", "Size must be specified as bytes (b), but was 1x.", "read "),
        ("yarn did not let it start", RETRIES, "yarn", "Retrying connect to server: 127.0.0.1", "yarn node -list"),
        (EXITED, "", "local[2]", EXITED, "read "),
    ],
)
def test_cause_is_the_one_that_a_person_can_do_something_about(
    error: str, log: str, master: str, cause: str, advice: str, tmp_path: Path
) -> None:
    (file := tmp_path / "spark.log").write_text('Exception in thread "main" of an earlier start\n' + log)
    found = explained(RuntimeError(error), file, len('Exception in thread "main" of an earlier start\n'), master)
    assert cause in str(found.cause)
    assert str(found.next_command).startswith(advice)
    assert "java." not in str(found.cause) and "org.apache" not in str(found.cause)


def test_what_a_start_waits_for_is_in_the_log_before_it_fails(tmp_path: Path) -> None:
    assert why("", RETRIES).startswith("Retrying connect to server: 127.0.0.1/127.0.0.1:1")
    assert why("", "") == ""
    assert said_since(tmp_path / "none", 0) == ""
