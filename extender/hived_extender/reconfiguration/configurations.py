"""The configurations of a service: the one in force, those before it, and how another one comes into force.

A change is built and judged beside the present state, then committed to the store, then switched to. The commit is what
counts after a crash; until it has happened, nothing has. A change that cannot be switched to after all is taken back
from the store. Every replica follows the store: what another one has committed is taken up without further questions,
and a text that somebody has edited there is tried by the leader as if it had been pushed.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from hived.errors import HivedError, UserError
from hived.state import State
from hived_config.errors import ConfigError
from hived_config.loader import Configuration, load_text
from hived_extender.api.configuration import (
    UNKNOWN_CHANGES,
    Config,
    ConfigPushArgs,
    ConfigReport,
    ConfigVersion,
    RefusedEdit,
    VersionEntry,
)
from hived_extender.kube.client import KubeError
from hived_extender.kube.events import NORMAL, WARNING
from hived_extender.reconfiguration.change import DOWNGRADE_REMEDY, Agreed, Change, Disagreement, Outcome, check_agreed
from hived_extender.reconfiguration.stores import CommitConflict, NoAnswer, Snapshot, Store
from hived_extender.reconfiguration.versions import Refusal, Stored, Version, with_version
from hived_extender.service.service import NotLeadingError, Service

log = logging.getLogger(__name__)

REFUSED = 422
UNAVAILABLE = 503
WITHDRAW_TRIES = 5
BUSY_S = 1.0
"""Until a replica that is about to lead, and waits for a change of its earlier term, looks whether it still may."""

WORDS_LIMIT = 1000
FIRST_RETRY_S = 0.25
LONGEST_RETRY_S = 5.0
"""Until a configuration of the store that could not be taken up is tried again: each time twice as long."""


class Refused(UserError):
    """A push that was refused; `report` says what it would have done, None if that could not be told."""

    def __init__(self, message: str, code: int, report: ConfigReport | None = None) -> None:
        super().__init__(message, code)
        self.report = report


class Configurations:
    """See the module. Thread-safe: one change at a time, whoever else wants one waits.

    `read` reads texts that are pushed, planned or edited. `on_switch` is told of every configuration that comes into
    force, `relist` has all pods told anew, and `tell` writes an event about the store: its type, reason and message.
    """

    def __init__(
        self,
        service: Service,
        store: Store,
        configuration: Configuration,
        version: Version,
        *,
        has_profiles: bool = False,
        read: Callable[[str, str], Configuration] = load_text,
        on_switch: Callable[[Configuration], None] = lambda configuration: None,
        relist: Callable[[], None] = lambda: None,
        tell: Callable[[str, str, str], None] = lambda kind, reason, message: None,
    ) -> None:
        """`configuration` and `version` are what the service was made with; `has_profiles` is as in `Change`."""
        self._service = service
        self._store = store
        self._configuration = configuration
        self._version = version
        self._has_profiles = has_profiles
        self._read = read
        self._on_switch = on_switch
        self._relist = relist
        self._tell = tell
        self._busy = threading.Lock()
        self._is_stopping = threading.Event()
        self._seen: Snapshot | None = None
        self._refused: Refusal | None = None  # whether or not there was room in the store to say so
        self._has_news = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="configuration", daemon=True)
        service.metrics.config_version.set(version.version)

    @property
    def store(self) -> Store:
        """Where they are kept."""
        return self._store

    @property
    def in_force(self) -> Version:
        """The version in force."""
        return self._version

    def start(self) -> None:
        """Follow the store."""
        self._thread.start()
        self._store.start(self._noticed)

    def catch_up(self) -> bool:
        """Take up the stored version before a term begins, and fence off earlier leaders; False to be called again.

        A store that cannot be read for another reason than silence leaves in force the version that is.
        """
        if not self._store.is_shared:
            return True
        if not self._busy.acquire(timeout=BUSY_S):
            return False
        try:
            snapshot = self._store.read()
            newest = snapshot.stored.newest
            if newest is not None and newest != self._version:
                self._converge(newest)
            self._store.fence(snapshot)
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
        self._has_news.set()
        self._store.stop()
        if self._thread.ident is not None:
            self._thread.join()

    # People

    def describe(self) -> Config:
        """The configuration in force."""
        refused: Refusal | None = None
        cluster_id, version = "", self._version
        if self._seen is not None:
            refused, cluster_id = self._seen.stored.refused, self._seen.stored.cluster_id
        return Config(
            **msgspec.structs.asdict(version.shown()),
            source=self._store.source,
            cluster_id=cluster_id,
            is_pushable=self._store.is_shared,
            refused=None if refused is None else RefusedEdit(refused.reason, refused.when),
        )

    def versions(self) -> list[VersionEntry]:
        """Those that are kept, the newest first."""
        return [version.entry() for version in reversed(self._kept())]

    def version(self, number: int) -> ConfigVersion:
        """One of them. Raises UserError (404)."""
        for version in self._kept():
            if version.version == number:
                return version.shown()
        raise UserError(f"version {number} is not kept", 404)

    def _kept(self) -> tuple[Version, ...]:
        """Those of the store; the one in force until the leader has written that there, at its first start."""
        return self._store.read().stored.versions or (self._version,)

    def plan(self, text: str, file: str) -> ConfigReport:
        """What a text would do; nothing changes. Raises UserError only where that cannot be told."""
        with self._busy:
            try:
                configuration = self._read(text, file)
            except ConfigError as error:
                return invalid(error, self._version.version)
            with self._change(configuration, text, is_recorded=False) as change:
                outcome = change.outcome(*change.catch_up_with(self._service))
        return outcome.report()

    def push(self, push: ConfigPushArgs) -> tuple[Version, ConfigReport | None]:
        """Put a text in force; returns its version and what it did, None where another replica does it.

        Raises Refused, and UserError as `plan` does.
        """
        with self._busy:
            if not self._store.is_shared:
                raise Refused(f"the configuration comes from the {self._store.source}: change that instead", 409)
            _check_words(push)
            snapshot = self._store.read()
            newest = self._newest(snapshot.stored)
            if push.base_version and newest.version != push.base_version:
                by = f" by {newest.who}" if newest.who else ""
                raise Refused(
                    f"version {newest.version} was pushed{by} at {newest.when}, after version {push.base_version}: "
                    "pull it, make your change to it, and push again",
                    409,
                )
            self._check_cluster(snapshot.stored, push.cluster_id)
            return self._put_in_force(push, push.agreed, snapshot)

    # Inside, while busy

    def _check_cluster(self, stored: Stored, cluster_id: str) -> None:
        if cluster_id and stored.cluster_id and cluster_id != stored.cluster_id:
            raise Refused(f"this is the cluster {stored.cluster_id}, not {cluster_id}", 409)

    def _put_in_force(
        self, push: ConfigPushArgs, agreed: Agreed | None, snapshot: Snapshot
    ) -> tuple[Version, ConfigReport | None]:
        """As `push`; where nobody has agreed to anything (None), anything may become of running work."""
        try:
            return self._carry_out(push, agreed, snapshot)
        except UserError as error:
            if error.code == UNAVAILABLE:
                raise  # it may be tried again as it is
            self._count("refused")
            log.warning("configuration refused", extra={"fields": {"who": push.who, "reason": error.message}})
            self._tell(WARNING, "ConfigRefused", error.message)
            if isinstance(error, Refused):
                raise
            raise Refused(error.message, REFUSED) from error

    def _carry_out(
        self, push: ConfigPushArgs, agreed: Agreed | None, snapshot: Snapshot
    ) -> tuple[Version, ConfigReport | None]:
        try:
            configuration = self._read(push.text, push.file)
        except ConfigError as error:
            raise Refused(str(error), REFUSED, invalid(error, self._version.version)) from error
        if not self._store.is_shared and self._service.configure(configuration, push.text):
            stored = self._next(snapshot.stored, push)  # another replica leads, and has a file of its own
            self._store.commit(snapshot, stored)
            self._took_up(configuration, self._newest(stored))
            return self._version, None
        with self._change(configuration, push.text) as change:
            present, waiting = change.catch_up_with(self._service)
            outcome = change.outcome(present, waiting)
            self._judge(push, agreed, outcome, present)
            stored = self._next(snapshot.stored, push)
            try:
                committed = self._store.commit(snapshot, stored)
            except CommitConflict as error:
                if error.code == UNAVAILABLE:
                    raise
                raise Refused(error.message + ": plan again", error.code, outcome.report()) from error
            try:
                seconds = change.switch(self._service, agreed, may_lock_out=push.allow_downgrade)
            except NotLeadingError as error:
                raise UserError(
                    f"version {self._newest(stored).version} is stored, and the next leader puts it in force: "
                    f"{error.message}",
                    UNAVAILABLE,
                ) from error
            except Exception as error:  # also one that stops the service: it is to begin anew with what worked
                self._take_back(committed, snapshot.stored, error)
                if isinstance(error, UserError):
                    raise Refused(error.message, error.code, outcome.report()) from error
                raise
            self._seen = committed
            self._switched(configuration, self._newest(committed.stored), seconds)
            self._service.tell_affected(outcome.affected)
        return self._version, outcome.report()

    def _judge(self, push: ConfigPushArgs, agreed: Agreed | None, outcome: Outcome, present: State) -> None:
        """Raise Refused if the change must not happen."""
        if outcome.locked_out and not push.allow_downgrade:
            reason = _needs_downgrade(outcome, self._store.downgrade_remedy)
            raise Refused(reason, REFUSED, outcome.report([reason]))
        if agreed is not None:
            try:
                check_agreed(outcome.affected, agreed, present)
            except Disagreement as error:
                raise Refused(error.message, error.code, outcome.report()) from error

    def _next(self, stored: Stored, push: ConfigPushArgs) -> Stored:
        """What is to be stored. Versions that the object has lost are those that this replica remembers."""
        known = stored if stored.versions else replace(stored, versions=(self._version,))
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return with_version(known, push.text, who=push.who, when=now, why=push.message, cluster_id=push.cluster_id)

    def _newest(self, stored: Stored) -> Version:
        return stored.newest or self._version

    def _take_back(self, committed: Snapshot, before: Stored, reason: Exception) -> None:
        """Withdraw what was committed; raises UserError (503), which says that it may be in force soon, if it stays."""
        try:
            self._withdraw(committed, before)
        except UserError as error:
            self._has_news.set()  # the store is followed, whatever it says
            number = self._newest(committed.stored).version
            raise UserError(
                f"{reason}; but version {number} is stored and could not be taken back, so that it may come "
                f"into force: {error.message}",
                UNAVAILABLE,
            ) from error

    def _withdraw(self, committed: Snapshot, before: Stored) -> None:
        """The old configuration stays in force: the store has to say so, whatever else was written there meanwhile.

        Raises UserError if that cannot be done: what is stored comes into force then.
        """
        version, stored = self._newest(committed.stored), replace(before, versions=before.versions or (self._version,))
        for _ in range(WITHDRAW_TRIES):
            try:
                self._store.commit(committed, stored)
                return
            except CommitConflict:
                committed = self._store.read()
                now = committed.stored
                if now.newest != version:
                    return  # somebody else's is in force, or the old one
                text = before.text if now.text == version.text else now.text
                stored = replace(now, text=text, versions=stored.versions, cluster_id=before.cluster_id)
        raise UserError(f"{self._store.source} is changed again and again", UNAVAILABLE)

    @contextmanager
    def _change(self, configuration: Configuration, text: str, *, is_recorded: bool = True) -> Iterator[Change]:
        draft = self._service.draft(text) if is_recorded else None
        change = Change(
            self._configuration, configuration, draft, self._version.version, has_profiles=self._has_profiles
        )
        try:
            yield change
        finally:
            change.drop()

    def _switched(self, configuration: Configuration, version: Version, seconds: float) -> None:
        """The state is that of another configuration now."""
        self._service.metrics.config_switch_seconds.observe(seconds)
        self._took_up(configuration, version)
        log.info(
            "configuration in force",
            extra={"fields": {"version": version.version, "who": version.who, "waited_ms": round(seconds * 1000, 1)}},
        )
        self._tell(NORMAL, "ConfigApplied", f"version {version.version} is in force" + _by(version))

    def _took_up(self, configuration: Configuration, version: Version) -> None:
        reads_pods_anew = _reading(configuration) != _reading(self._configuration)
        self._configuration, self._version = configuration, version
        self._service.metrics.config_version.set(version.version)
        self._count("applied")
        try:
            self._on_switch(configuration)
        except Exception as error:
            log.exception("not everything has taken a configuration up")
            self._failed(f"version {version.version} is in force, but not everything has taken it up: {error}")
        if reads_pods_anew:
            self._relist()

    def _count(self, outcome: str) -> None:
        self._service.metrics.config_changes.labels(outcome).inc()

    # Following the store, on a thread of its own

    def _noticed(self, snapshot: Snapshot) -> None:
        self._seen = snapshot
        self._has_news.set()

    def _follow(self) -> None:
        """Look at what is stored whenever it changes; again after a while if something kept it from coming in force."""
        retry_s: float | None = None
        while not self._is_stopping.is_set():
            has_news = self._has_news.wait(retry_s)
            self._has_news.clear()
            if self._is_stopping.is_set():
                return
            is_settled = False
            try:
                is_settled = self._look()
            except Exception as error:
                if not isinstance(error, HivedError | KubeError):
                    log.exception("the stored configuration could not be taken up")
            if is_settled:
                retry_s = None
            else:
                retry_s = FIRST_RETRY_S if has_news or retry_s is None else min(2 * retry_s, LONGEST_RETRY_S)

    def _look(self) -> bool:
        """Take up what is stored; False if that has to be tried again."""
        with self._busy:
            try:
                snapshot = self._store.read()
            except UserError:
                return False
            self._seen = snapshot
            stored = snapshot.stored
            newest = stored.newest
            decides = self._service.is_ready or not self._store.is_shared
            if newest is not None and (newest.version, newest.text) != (self._version.version, self._version.text):
                if not self._converge(newest):
                    return False
            elif newest is None and decides:
                snapshot = self._store.commit(snapshot, replace(stored, versions=(self._version,)))
                stored = snapshot.stored
            if stored.text == self._version.text:
                if stored.refused is not None and decides:  # what was refused has been taken back
                    self._seen = self._store.commit(snapshot, replace(stored, refused=None))
                return newest is not None or decides
            if stored.refused is not None and stored.refused.sha256 == stored.sha256:
                return newest is not None or decides
            if self._refused is not None and self._refused.sha256 == stored.sha256 and decides:
                return self._note_refusal(snapshot, self._refused)
            return self._try_edited(snapshot) if decides else False

    def _converge(self, version: Version) -> bool:
        """Another replica has put this in force."""
        try:
            configuration = load_text(version.text, f"version {version.version}")
        except ConfigError as error:
            self._failed(f"version {version.version} is in force, but this replica cannot read it: {error}")
            return False
        if self._service.configure(configuration, version.text):
            self._took_up(configuration, version)
            return True
        with self._change(configuration, version.text) as change:
            try:
                change.catch_up_with(self._service)
                seconds = change.switch(self._service, None)
            except NotLeadingError:
                return False
            except UserError as error:
                self._failed(f"version {version.version} is stored, but cannot be put in force: {error.message}")
                return False
            self._switched(configuration, version, seconds)
        return True

    def _try_edited(self, snapshot: Snapshot) -> bool:
        """Somebody has changed the text by hand: as good as a push, or else refused."""
        stored = snapshot.stored
        who = snapshot.manager
        push = ConfigPushArgs(
            stored.text, self._store.source, f"edited in the {self._store.source}", who,
            allow_downgrade=stored.may_downgrade,
        )  # fmt: skip
        try:
            self._put_in_force(push, None, snapshot)
        except Refused as error:
            if isinstance(error.__cause__, CommitConflict | Disagreement):
                return False
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            self._refused = Refusal(error.message[:1024], now, stored.sha256)
            return self._note_refusal(snapshot, self._refused)
        return True

    def _note_refusal(self, snapshot: Snapshot, refusal: Refusal) -> bool:
        """Write it beside the text; False if that has to be tried again."""
        try:
            self._seen = self._store.commit(snapshot, replace(snapshot.stored, refused=refusal))
        except CommitConflict:
            return False
        except UserError as error:
            if error.code == UNAVAILABLE:
                raise
            log.warning("there is no room to say why a configuration is refused: %s", error.message)
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


def _check_words(push: ConfigPushArgs) -> None:
    """Raise Refused for words that are too long to be kept with every version, or that would not show as they are."""
    given = {"message": push.message, "who": push.who, "clusterId": push.cluster_id}
    for name, text in given.items():
        if len(text) > WORDS_LIMIT or not text.isprintable():
            raise Refused(f"{name}: expected one line of at most {WORDS_LIMIT} printable characters", REFUSED)


def _needs_downgrade(outcome: Outcome, remedy: str) -> str:
    names = outcome.locked_out
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return (
        f"it would take from {len(names)} running guaranteed group{'s' * (len(names) > 1)} what their VC is guaranteed "
        f"({shown}): they run on, but anybody may preempt them. If that is meant, push with {DOWNGRADE_REMEDY}, or "
        f"{remedy}"
    )


def _by(version: Version) -> str:
    who = f", pushed by {version.who}" if version.who else ""
    return who + (f": {version.why}" if version.why else "")


def _reading(configuration: Configuration) -> tuple[Any, ...]:
    """All that pods are read by."""
    cluster = configuration.cluster
    return configuration.rules, cluster.virtual_clusters, cluster.cell_types, cluster.sku_types
