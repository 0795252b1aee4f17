"""The configurations of a service: questions and pushes of people, the store, and the procedure of a change.

Every replica follows the store. A version that another one has committed is taken up without further checks. The leader
tries a text that was edited there like a push. A change is built and judged beside the present state, then committed to
the store, then switched to. After a crash only the commit counts; before it, nothing has happened. A change that cannot
be switched to after all is taken back from the store.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from hived.cells.state import State
from hived.values.errors import HivedError, UserError
from hived.values.specs import Rules
from hived_config.document import ConfigError
from hived_config.loader import Configuration, load_text
from hived_config.words import counted
from hived_extender.api.configuration import (
    UNKNOWN_CHANGES,
    Config,
    ConfigPushArgs,
    ConfigReport,
    ConfigVersion,
    RefusedEdit,
    VersionEntry,
)
from hived_extender.jobs.interpreter import reading_of
from hived_extender.kube.client import KubeError
from hived_extender.kube.clocks import Backoff, timestamp
from hived_extender.kube.events import NORMAL, WARNING
from hived_extender.machine.service import Service
from hived_extender.machine.verbs import NotLeadingError
from hived_extender.reconfiguration.certified import why_not
from hived_extender.reconfiguration.change import (
    DOWNGRADE_REMEDY,
    Agreed,
    Beside,
    Change,
    Disagreement,
    Outcome,
    check_agreed,
    configure,
    tell_affected,
)
from hived_extender.reconfiguration.stores import CommitConflict, NoAnswer, Origin, Snapshot
from hived_extender.reconfiguration.versions import Refusal, Stored, Version, with_version

log = logging.getLogger(__name__)

REFUSED = 422
UNAVAILABLE = 503
WITHDRAW_TRIES = 5


class Refused(UserError):
    """A push that was refused; `report` has its effects had it been done, None if they could not be told."""

    def __init__(self, message: str, code: int, report: ConfigReport | None = None) -> None:
        super().__init__(message, code)
        self.report = report


class InForce:
    """Puts configurations in force. Not thread-safe: `Configurations` makes one change at a time.

    `seen` is the store's last answer, None before it was read; `has_news` is set when the store may differ from the
    configuration in force. `read` reads texts that are pushed, planned or edited. `on_switch` is told of every
    configuration that comes into force, `relist` has all pods told anew, and `tell` writes an event about the store:
    its type, reason and message.
    """

    def __init__(
        self,
        service: Service,
        origin: Origin,
        *,
        has_profiles: bool = False,
        read: Callable[[str, str], Configuration] = load_text,
        on_switch: Callable[[Configuration], None] = lambda configuration: None,
        relist: Callable[[], None] = lambda: None,
        tell: Callable[[str, str, str], None] = lambda kind, reason, message: None,
        beside: Beside = lambda new: (),
    ) -> None:
        """`origin` is the configuration of the start; `has_profiles` and `beside` are as in `Change`."""
        self.service = service
        self.store = origin.store
        self.configuration = origin.configuration
        self.version = origin.version
        self.seen: Snapshot | None = None
        self.has_news = threading.Event()
        self.read = read
        self._new_change = partial(Change, has_profiles=has_profiles, beside=beside)
        self._on_switch = on_switch
        self._relist = relist
        self._tell = tell
        self._count_in_force()

    def put(
        self, push: ConfigPushArgs, agreed: Agreed | None, snapshot: Snapshot, *, is_own: bool = False
    ) -> tuple[Version, ConfigReport | None]:
        """Put a text in force; returns its version and effects, None where another replica does it.

        A push of the service's `is_own` needs no certificate. With `agreed` None, anything may
        become of running work. Raises Refused, and UserError
        (503) for a push that may be retried as it is.
        """
        try:
            return self._carry_out(push, agreed, snapshot, is_own)
        except UserError as error:
            if error.code == UNAVAILABLE:
                raise
            self._count("refused")
            log.warning("configuration refused", extra={"fields": {"who": push.who, "reason": error.message}})
            self._tell(WARNING, "ConfigRefused", error.message)
            if isinstance(error, Refused):
                raise
            raise Refused(error.message, REFUSED) from error

    def _carry_out(
        self, push: ConfigPushArgs, agreed: Agreed | None, snapshot: Snapshot, is_own: bool
    ) -> tuple[Version, ConfigReport | None]:
        try:
            configuration = self.read(push.text, push.file)
        except ConfigError as error:
            raise Refused(str(error), REFUSED, invalid(error, self.version.version)) from error
        if not is_own:
            self._check_certificate(push, snapshot.stored)
        if not self.store.is_shared and configure(self.service, configuration, push.text):
            stored = self._next(snapshot.stored, push)  # another replica leads, and has a file of its own
            self.store.commit(snapshot, stored)
            self._took_up(configuration, self.newest(stored))
            return self.version, None
        with self.change(configuration, push.text) as change:
            present, waiting = change.catch_up_with(self.service)
            outcome = change.outcome(present, waiting)
            self._judge(push, agreed, outcome, present)
            stored = self._next(snapshot.stored, push)
            try:
                committed = self.store.commit(snapshot, stored)
            except CommitConflict as error:
                if error.code == UNAVAILABLE:
                    raise
                raise Refused(error.message + ": plan again", error.code, outcome.report()) from error
            try:
                version = self.newest(stored).version
                switch = change.switch(self.service, agreed, version, may_lock_out=push.allow_downgrade)
            except NotLeadingError as error:
                raise UserError(
                    f"version {self.newest(stored).version} is stored, and the next leader puts it in force: "
                    f"{error.message}",
                    UNAVAILABLE,
                ) from error
            except (
                Exception
            ) as error:  # also an error that stops the service: it is to begin anew with the text that worked
                self._take_back(committed, snapshot.stored, error)
                if isinstance(error, UserError):
                    raise Refused(error.message, error.code, outcome.report()) from error
                raise
            self.seen = committed
            self._switched(configuration, self.newest(committed.stored), switch.seconds)
            outcome = outcome.at(switch)
            tell_affected(self.service, outcome.affected)
        return self.version, outcome.report()

    def _check_certificate(self, push: ConfigPushArgs, stored: Stored) -> None:
        """Raise Refused for a push without the certificate that is demanded, or with one that is of no use.

        A file is its owner's, who can show none.
        """
        if not self.store.is_shared or (push.certificate is None and stored.may_lack_certificate):
            return
        reason = why_not(push.certificate, self.configuration.certify, self.newest(stored).text, push.text)
        if reason and push.certificate is None:
            reason += f", or {self.store.certificate_remedy}"
        if reason:
            raise Refused(reason, REFUSED)

    def _judge(self, push: ConfigPushArgs, agreed: Agreed | None, outcome: Outcome, present: State) -> None:
        """Raise Refused if the change must not happen (rules 33.1, 33.2)."""
        if outcome.refusals:
            raise Refused("; ".join(outcome.refusals), REFUSED, outcome.report())
        if outcome.locked_out and not push.allow_downgrade:
            reason = _needs_downgrade(outcome, self.store.downgrade_remedy)
            raise Refused(reason, REFUSED, outcome.report([reason]))
        if agreed is not None:
            try:
                check_agreed(outcome.affected, agreed, present)
            except Disagreement as error:
                raise Refused(error.message, error.code, outcome.report()) from error

    def _next(self, stored: Stored, push: ConfigPushArgs) -> Stored:
        """The next content of the store. Versions that the object has lost are restored from this replica's memory."""
        known = stored if stored.versions else replace(stored, versions=(self.version,))
        now = timestamp()
        return with_version(
            known, push.text, who=push.who, when=now, why=push.message, cluster_id=push.cluster_id,
            certificate=push.certificate,
        )  # fmt: skip

    def newest(self, stored: Stored) -> Version:
        """The newest version that is stored; the one in force until the leader has written that, at its first start."""
        return stored.newest or self.version

    def _take_back(self, committed: Snapshot, before: Stored, reason: Exception) -> None:
        """Withdraw the commit (rule 33.3). If it stays, raises UserError (503): it may be in force soon."""
        try:
            self._withdraw(committed, before)
        except UserError as error:
            self.has_news.set()  # the store is followed in any case
            number = self.newest(committed.stored).version
            raise UserError(
                f"{reason}; but version {number} is stored and could not be taken back, so that it may come "
                f"into force: {error.message}",
                UNAVAILABLE,
            ) from error

    def _withdraw(self, committed: Snapshot, before: Stored) -> None:
        """The old configuration stays in force: the store has to say so, over any write meanwhile.

        Raises UserError if that fails: the stored configuration then comes into force.
        """
        version, stored = self.newest(committed.stored), replace(before, versions=before.versions or (self.version,))
        for _ in range(WITHDRAW_TRIES):
            try:
                self.store.commit(committed, stored)
                return
            except CommitConflict:
                committed = self.store.read()
                now = committed.stored
                if now.newest != version:
                    return  # somebody else's is in force, or the old one
                text = before.text if now.text == version.text else now.text
                stored = replace(now, text=text, versions=stored.versions, cluster_id=before.cluster_id)
        raise UserError(f"{self.store.source} is changed again and again", UNAVAILABLE)

    @contextmanager
    def change(self, configuration: Configuration, text: str, *, is_recorded: bool = True) -> Iterator[Change]:
        """A change to another configuration, dropped in the end; one that is only planned is not recorded."""
        draft = self.service.draft(text) if is_recorded else None
        change = self._new_change(self.configuration, configuration, draft, self.version.version)
        try:
            yield change
        finally:
            change.drop()

    def _switched(self, configuration: Configuration, version: Version, seconds: float) -> None:
        """The state is that of another configuration now."""
        self.service.metrics.config_switch_seconds.observe(seconds)
        self._took_up(configuration, version)
        log.info(
            "configuration in force",
            extra={"fields": {"version": version.version, "who": version.who, "waited_ms": round(seconds * 1000, 1)}},
        )
        self._tell(NORMAL, "ConfigApplied", f"version {version.version} is in force" + _by(version))

    def _count_in_force(self) -> None:
        self.service.metrics.config_version.set(self.version.version)
        self.service.metrics.rules.set(self.configuration.cluster.rules)

    def _took_up(self, configuration: Configuration, version: Version) -> None:
        reads_pods_anew = _reading(configuration) != _reading(self.configuration)
        self.configuration, self.version = configuration, version
        self._count_in_force()
        self._count("applied")
        try:
            self._on_switch(configuration)
        except Exception as error:
            log.exception("not everything has taken a configuration up")
            self._failed(f"version {version.version} is in force, but not everything has taken it up: {error}")
        if reads_pods_anew:
            self._relist()

    def _count(self, outcome: str) -> None:
        self.service.metrics.config_changes.labels(outcome).inc()

    def converge(self, version: Version) -> bool:
        """Take up the version that another replica has put in force; False to retry."""
        try:
            configuration = load_text(version.text, f"version {version.version}")
        except ConfigError as error:
            self._failed(f"version {version.version} is in force, but this replica cannot read it: {error}")
            return False
        if configure(self.service, configuration, version.text):
            self._took_up(configuration, version)
            return True
        with self.change(configuration, version.text) as change:
            try:
                change.catch_up_with(self.service)
                switch = change.switch(self.service, None, version.version)
            except NotLeadingError:
                return False
            except UserError as error:
                self._failed(f"version {version.version} is stored, but cannot be put in force: {error.message}")
                return False
            self._switched(configuration, version, switch.seconds)
        return True

    def _failed(self, message: str) -> None:
        log.error(message)
        self._count("failed")
        self._tell(WARNING, "ConfigFailed", message)


def invalid(error: ConfigError, base_version: int) -> ConfigReport:
    """The report on a text that is no sound configuration."""
    return ConfigReport(
        base_version,
        refusals=[str(mistake) for mistake in error.mistakes if not mistake.is_warning],
        warnings=[str(mistake) for mistake in error.mistakes if mistake.is_warning],
        changes=UNKNOWN_CHANGES,
    )


def _needs_downgrade(outcome: Outcome, remedy: str) -> str:
    names = outcome.locked_out
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return (
        f"it would take from {counted(len(names), 'running guaranteed job')} what their virtual cluster is guaranteed "
        f"({shown}): they run on, but any guaranteed job may preempt them. If that is meant, push with "
        f"{DOWNGRADE_REMEDY}, or {remedy}"
    )


def _by(version: Version) -> str:
    who = f", pushed by {version.who}" if version.who else ""
    return who + (f": {version.why}" if version.why else "")


def _reading(configuration: Configuration) -> tuple[Any, ...]:
    return reading_of(configuration.cluster, configuration.rules)


log = logging.getLogger(__name__)

BUSY_S = 1.0
"""Until a replica that is about to lead, and waits for a change of its earlier term, looks whether it still may."""

WORDS_LIMIT = 1000
FIRST_RETRY_S = 0.25
LONGEST_RETRY_S = 5.0
"""Until a configuration of the store that could not be taken up is tried again: each time twice as long."""


class Configurations:
    """Answers people and follows the store. Thread-safe: one change at a time, others wait."""

    def __init__(self, in_force: InForce) -> None:
        self._in_force = in_force
        self._service = in_force.service
        self.store = in_force.store
        self._busy = threading.Lock()
        self._is_stopping = threading.Event()
        self._refused: Refusal | None = None  # whether or not there was room in the store to say so
        self._thread = threading.Thread(target=self._follow, name="configuration", daemon=True)

    @property
    def in_force(self) -> Version:
        """The version in force."""
        return self._in_force.version

    @property
    def rules(self) -> Rules:
        """The rules of decisions of the version in force, also of a replica that does not lead."""
        return self._in_force.configuration.cluster.rules

    def start(self) -> None:
        """Follow the store."""
        self._thread.start()
        self.store.start(self._noticed)

    def catch_up(self) -> bool:
        """Take up the stored version before a term begins, and fence off earlier leaders; False to be called again.

        A store that cannot be read for another reason than silence leaves in force the version that is.
        """
        if not self.store.is_shared:
            return True
        if not self._busy.acquire(timeout=BUSY_S):
            return False
        try:
            snapshot = self.store.read()
            newest = snapshot.stored.newest
            if newest is not None and newest != self._in_force.version:
                self._in_force.converge(newest)
            self.store.fence(snapshot)
        except (CommitConflict, NoAnswer):
            return False
        except UserError as error:
            log.warning("the stored configuration is not known", extra={"fields": {"reason": error.message}})
        finally:
            self._busy.release()
        return True

    def stop(self) -> None:
        """Follow it no more; waits for a change under way."""
        self._is_stopping.set()
        self._in_force.has_news.set()
        self.store.stop()
        if self._thread.ident is not None:
            self._thread.join()

    # People

    def describe(self) -> Config:
        """The configuration in force."""
        refused: Refusal | None = None
        cluster_id, version, may_lack = "", self._in_force.version, False
        if self._in_force.seen is not None:
            stored = self._in_force.seen.stored
            refused, cluster_id, may_lack = stored.refused, stored.cluster_id, stored.may_lack_certificate
        return Config(
            **msgspec.structs.asdict(version.shown()),
            source=self.store.source,
            cluster_id=cluster_id,
            is_pushable=self.store.is_shared,
            refused=None if refused is None else RefusedEdit(refused.reason, refused.when),
            record=self._in_force.service.record,
            may_lack_certificate=may_lack,
        )

    def versions(self) -> list[VersionEntry]:
        """The kept versions, the newest first."""
        return [version.entry() for version in reversed(self._kept())]

    def version(self, number: int) -> ConfigVersion:
        """One of them. Raises UserError (404)."""
        for version in self._kept():
            if version.version == number:
                return version.shown()
        raise UserError(f"version {number} is not kept", 404)

    def _kept(self) -> tuple[Version, ...]:
        """The versions of the store; only the one in force until the leader's first start has written it there."""
        return self.store.read().stored.versions or (self._in_force.version,)

    def plan(self, text: str, file: str) -> ConfigReport:
        """The effects that a text would have; nothing changes. Raises UserError only where they cannot be told."""
        with self._busy:
            try:
                configuration = self._in_force.read(text, file)
            except ConfigError as error:
                return invalid(error, self._in_force.version.version)
            with self._in_force.change(configuration, text, is_recorded=False) as change:
                outcome = change.outcome(*change.catch_up_with(self._service))
        return outcome.report()

    def push(self, push: ConfigPushArgs, *, is_own: bool = False) -> tuple[Version, ConfigReport | None]:
        """Put a text in force; returns its version and effects, None where another replica does it.

        The service's own changes need no certificate: they touch no virtual cluster.

        Raises Refused, and UserError as `plan` does.
        """
        with self._busy:
            if not self.store.is_shared:
                raise Refused(f"the configuration comes from the {self.store.source}: change that instead", 409)
            _check_words(push)
            snapshot = self.store.read()
            newest = self._in_force.newest(snapshot.stored)
            if push.base_version and newest.version != push.base_version:
                by = f" by {newest.who}" if newest.who else ""
                raise Refused(
                    f"version {newest.version} was pushed{by} at {newest.when}, after version {push.base_version}: "
                    "pull it, make your change to it, and push again",
                    409,
                )
            self._check_cluster(snapshot.stored, push.cluster_id)
            return self._in_force.put(push, push.agreed, snapshot, is_own=is_own)

    def _check_cluster(self, stored: Stored, cluster_id: str) -> None:
        if cluster_id and stored.cluster_id and cluster_id != stored.cluster_id:
            raise Refused(f"this is the cluster {stored.cluster_id}, not {cluster_id}", 409)

    # Following the store, on a thread of its own

    def _noticed(self, snapshot: Snapshot) -> None:
        self._in_force.seen = snapshot
        self._in_force.has_news.set()

    def _follow(self) -> None:
        """Take up the store's text whenever it changes; retry after a while if it could not come into force."""
        backoff = Backoff(FIRST_RETRY_S, LONGEST_RETRY_S)
        while not self._is_stopping.is_set():
            has_news = self._in_force.has_news.wait(backoff.wait_s or None)
            self._in_force.has_news.clear()
            if self._is_stopping.is_set():
                return
            is_settled = False
            try:
                is_settled = self._look()
            except Exception as error:
                if not isinstance(error, HivedError | KubeError):
                    log.exception("the stored configuration could not be taken up")
            if has_news or is_settled:
                backoff.succeeded()
            if not is_settled:
                backoff.failed()

    def _look(self) -> bool:
        """Take up the store's text; False to retry."""
        with self._busy:
            try:
                snapshot = self.store.read()
            except UserError:
                return False
            self._in_force.seen = snapshot
            stored = snapshot.stored
            newest, now = stored.newest, self._in_force.version
            decides = self._service.is_ready or not self.store.is_shared
            if newest is not None and (newest.version, newest.text) != (now.version, now.text):
                if not self._in_force.converge(newest):
                    return False
            elif newest is None and decides:
                snapshot = self.store.commit(snapshot, replace(stored, versions=(self._in_force.version,)))
                stored = snapshot.stored
            if stored.text == self._in_force.version.text:
                if stored.refused is not None and decides:  # the refused text has been taken back
                    self._in_force.seen = self.store.commit(snapshot, replace(stored, refused=None))
                return newest is not None or decides
            if stored.refused is not None and stored.refused.sha256 == stored.sha256:
                return newest is not None or decides
            if self._refused is not None and self._refused.sha256 == stored.sha256 and decides:
                return self._note_refusal(snapshot, self._refused)
            return self._try_edited(snapshot) if decides else False

    def _try_edited(self, snapshot: Snapshot) -> bool:
        """Try a text that was edited in the store like a push, or note its refusal there."""
        stored = snapshot.stored
        who = snapshot.manager
        push = ConfigPushArgs(
            stored.text, self.store.source, f"edited in the {self.store.source}", who,
            allow_downgrade=stored.may_downgrade,
        )  # fmt: skip
        try:
            self._in_force.put(push, None, snapshot)
        except Refused as error:
            if isinstance(error.__cause__, CommitConflict | Disagreement):
                return False
            now = timestamp()
            self._refused = Refusal(error.message[:1024], now, stored.sha256)
            return self._note_refusal(snapshot, self._refused)
        return True

    def _note_refusal(self, snapshot: Snapshot, refusal: Refusal) -> bool:
        """Write it beside the text; False if that has to be tried again."""
        try:
            self._in_force.seen = self.store.commit(snapshot, replace(snapshot.stored, refused=refusal))
        except CommitConflict:
            return False
        except UserError as error:
            if error.code == UNAVAILABLE:
                raise
            log.warning("there is no room to say why a configuration is refused: %s", error.message)
        return True


def _check_words(push: ConfigPushArgs) -> None:
    """Raise Refused for words that are too long to be kept with every version, or that would not show as they are."""
    given = {"message": push.message, "who": push.who, "clusterId": push.cluster_id}
    for name, text in given.items():
        if len(text) > WORDS_LIMIT or not text.isprintable():
            raise Refused(f"{name}: expected one line of at most {WORDS_LIMIT} printable characters", REFUSED)
