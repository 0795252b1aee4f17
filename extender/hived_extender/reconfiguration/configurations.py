"""The configurations of a service: questions and pushes of people, and the store.

Every replica follows the store. A version that another one has committed is taken up without further checks. A text
that somebody has edited there is tried by the leader like a push.
"""

import logging
import threading
import time

import msgspec
from msgspec.structs import replace

from hived.errors import HivedError, UserError
from hived_config.errors import ConfigError
from hived_extender.api.configuration import (
    Config,
    ConfigPushArgs,
    ConfigReport,
    ConfigVersion,
    RefusedEdit,
    VersionEntry,
)
from hived_extender.kube.client import KubeError
from hived_extender.reconfiguration.change import Disagreement
from hived_extender.reconfiguration.in_force import REFUSED, UNAVAILABLE, InForce, Refused, invalid
from hived_extender.reconfiguration.stores import CommitConflict, NoAnswer, Snapshot
from hived_extender.reconfiguration.versions import Refusal, Stored, Version

log = logging.getLogger(__name__)

BUSY_S = 1.0
"""Until a replica that is about to lead, and waits for a change of its earlier term, looks whether it still may."""

WORDS_LIMIT = 1000
FIRST_RETRY_S = 0.25
LONGEST_RETRY_S = 5.0
"""Until a configuration of the store that could not be taken up is tried again: each time twice as long."""


class Configurations:
    """See the module. Thread-safe: one change at a time, others wait."""

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
        retry_s: float | None = None
        while not self._is_stopping.is_set():
            has_news = self._in_force.has_news.wait(retry_s)
            self._in_force.has_news.clear()
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
        """Somebody has changed the text by hand: as good as a push, or else refused."""
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
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
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
