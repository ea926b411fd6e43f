"""From options to a finished demonstration: run it, write and print what came of it, judge it."""

import asyncio
import shutil
import signal
import sysconfig
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from pliska.trainer.demo.chart import draw_chart
from pliska.trainer.demo.claims import Claim, broken, judge, unjudged_reason
from pliska.trainer.demo.display import open_display
from pliska.trainer.demo.errors import ClaimError, MissingExtraError, ProcessError
from pliska.trainer.demo.facts import DemoFacts
from pliska.trainer.demo.options import DemoOptions
from pliska.trainer.demo.report import claims_table, outcome_table, report_document, write_report
from pliska.trainer.demo.run import Demonstration
from pliska.trainer.demo.site import Site


def require_extra() -> None:
    """Say before a long run what would be missing at its end.

    Raises:
        MissingExtraError: scikit-learn or matplotlib is not installed.
    """
    for module, library in (("sklearn", "scikit-learn"), ("matplotlib", "matplotlib")):
        if find_spec(module) is None:
            raise MissingExtraError(library, "the demonstration")


def find_command() -> Path:
    """Find the `pliska` of this installation.

    Raises:
        ProcessError: There is none.
    """
    beside = Path(sysconfig.get_path("scripts"), "pliska")
    found = str(beside) if beside.is_file() else shutil.which("pliska")
    if found is None:
        raise ProcessError(f"there is no pliska command at {beside}: install Pliska with pip")
    return Path(found).absolute()


def run_and_report(options: DemoOptions, site: Site, command: Path) -> None:
    """Run the demonstration and leave its table, report and chart.

    Raises:
        ClaimError: Something that is claimed did not hold; the message names it.
        DemoError: The demonstration could not be brought to its end.
    """
    console = Console()
    with open_display(console) as display:
        demonstration = Demonstration(options, site, command, display)
        facts = asyncio.run(_until_terminated(demonstration))
    claims = judge(facts)
    write_report(site.report, report_document(facts, claims))
    draw_chart(facts, site.chart)
    _print(console, facts, claims, site)
    failed = broken(claims)
    if failed:
        raise ClaimError("; ".join(f"{claim.name}: {claim.detail}" for claim in failed))


async def _until_terminated(demonstration: Demonstration) -> DemoFacts:
    """Run it; SIGTERM and SIGHUP end it in the same orderly way as Ctrl-C."""
    running = asyncio.create_task(demonstration.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, running.cancel)
    return await running


def _print(console: Console, facts: DemoFacts, claims: tuple[Claim, ...], site: Site) -> None:
    for part in (outcome_table(facts), claims_table(claims)):
        console.print()
        console.print(part)
    reason = unjudged_reason(facts.options)
    if reason is not None:
        console.print(f"\nNot judged: {reason}.", markup=False, highlight=False)
    console.print()
    console.print(f"report  {site.report}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"chart   {site.chart}", markup=False, highlight=False, soft_wrap=True)
