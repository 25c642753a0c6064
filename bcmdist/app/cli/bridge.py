"""The command `bridge`: copy messages of MQTT into a table that can be ingested."""

import click

from bcmdist.app.cli.options import Command, json_option
from bcmdist.app.cli.output import report


@click.command(cls=Command)
@click.argument("source")
@click.argument("table")
@json_option
def bridge(source, table, as_json) -> dict:
    """Copy messages of SOURCE, mqtt://HOST[:PORT]/TOPIC, into TABLE until Ctrl-C, each once; `ingest` absorbs TABLE.

    A message is a JSON object of numbers, one row, with a whole number "sequence" that its publisher counts, sent with
    QoS 1. User and password of the broker are MQTT_USERNAME and MQTT_PASSWORD.

    Example: bcmdist bridge mqtt://HOST/sensors/+ 'sql+sqlite:///rows.db?table=rows'
    """
    from bcmdist.data.mqtt import Bridge  # quick start
    from bcmdist.runtime.signals import deferred_interrupts

    received: list[int] = []  # signals that ask to stop
    copied = Bridge(source, table)
    with deferred_interrupts(received):
        return report(copied.run(lambda: bool(received)), as_json)
