"""Rights of callers to change configurations, groups and queues.

Callers who may change the configuration may change all jobs that they see. Owners hold and release their own jobs,
which a role of theirs lets them update. A place in the order concerns others too, so owners do not move jobs.
"""

from collections.abc import Callable, Mapping
from functools import cached_property

import msgspec

from hived.values.errors import UserError
from hived_extender.api.configuration import Config, ConfigPushArgs, ConfigReport
from hived_extender.api.queues import QueueAction, QueueArgs, QueuedJob
from hived_extender.http.access import REMEMBER_GRANTED_S, REMEMBER_REFUSED_S, Memory
from hived_extender.http.answers import Identity
from hived_extender.http.masking import Mask
from hived_extender.jobs.annotations import PREFIX
from hived_extender.kube.client import KubeError
from hived_extender.queues.answering import QueueAnswers
from hived_extender.reconfiguration.configurations import Configurations
from hived_extender.reconfiguration.stores import ConfigMapStore, Store
from hived_extender.reconfiguration.versions import Version

OF_A_FILE = {"group": PREFIX.rstrip("/"), "resource": "configurations"}
"""`resourceAttributes` of the right to change queues and move groups, where the configuration is a file."""

MayDo = Callable[[Identity, Mapping[str, str]], bool]


class RememberedRights:
    """Rights as the API server said a moment ago, for pages that say what a caller may change: a `MayDo`."""

    def __init__(self, may_do: MayDo) -> None:
        self._may_do = may_do
        self._known: Memory[tuple[Identity, tuple[tuple[str, str], ...]], bool] = Memory()

    def __call__(self, caller: Identity, resource: Mapping[str, str]) -> bool:
        """True if a caller may do this. Raises KubeError."""
        key = caller, tuple(sorted(resource.items()))
        known = self._known.find(key)
        if known is not None:
            return known.value
        found = self._may_do(caller, resource)
        self._known.keep(key, found, REMEMBER_GRANTED_S if found else REMEMBER_REFUSED_S)
        return found


class ConfigPushes:
    """`may_do` asks the API server for a caller's rights, None where callers are not known; then only a service that
    `is_private`, which only this machine's users can call, takes pushes.
    """

    def __init__(self, configurations: Configurations, may_do: MayDo | None, *, is_private: bool) -> None:
        self.configurations = configurations
        self._may_do = may_do
        self._is_private = is_private

    @cached_property
    def shown(self) -> "ConfigPushes":
        """The same for pages, which are refreshed often: rights are remembered. Nothing is changed by it."""
        may_do = None if self._may_do is None else RememberedRights(self._may_do)
        return ConfigPushes(self.configurations, may_do, is_private=self._is_private)

    @property
    def is_pushable(self) -> bool:
        """True if a caller with the right can push here."""
        is_open = self._may_do is not None or self._is_private
        return is_open and self.configurations.store.is_shared

    def describe(self) -> Config:
        """The configuration in force, and whether it can be pushed here."""
        return msgspec.structs.replace(self.configurations.describe(), is_pushable=self.is_pushable)

    def push(self, push: ConfigPushArgs, caller: Identity | None) -> tuple[Version, ConfigReport | None]:
        """Push in the caller's name. Raises UserError (403) without the right to push, and the errors of
        `Configurations.push`.
        """
        return self.configurations.push(self._signed(push, caller))

    def name_of(self, caller: Identity | None, action: str = "push") -> str:
        """The name of a caller who may push, "" where callers are not known. Raises UserError (403) for any other.

        `action` is what the caller may not do then.
        """
        store = self.configurations.store
        if self._may_do is None:
            if not self._is_private:
                other = f", or change the {store.source} with kubectl" if action == "push" else ""
                raise UserError(
                    f"this service does not authenticate callers, so none may {action}: run it with --authorize{other}",
                    403,
                )
            return ""
        if caller is None:
            raise UserError("the caller is not known", 403)
        self._check_right(caller, store, self._may_do, action)
        return caller.name

    def may_update(self, caller: Identity, resource: Mapping[str, str]) -> bool:
        """True if a role of a caller allows `update` on an object (`resourceAttributes` without a verb).

        False where callers are not known. Raises UserError (503).
        """
        return self._may_do is not None and _is_allowed(self._may_do, caller, {"verb": "update", **resource}, "do this")

    def _signed(self, push: ConfigPushArgs, caller: Identity | None) -> ConfigPushArgs:
        name = self.name_of(caller)
        return msgspec.structs.replace(push, who=name) if self._may_do is not None else push

    def _check_right(self, caller: Identity, store: Store, may_do: MayDo, action: str) -> None:
        """A push needs the right to change the ConfigMap. Where the configuration is a file, a right of its own stands
        for it: queues and groups are changed by the same callers.
        """
        resource = OF_A_FILE
        if isinstance(store, ConfigMapStore):
            resource = {"resource": "configmaps", "namespace": store.namespace, "name": store.name}
        if not _is_allowed(may_do, caller, {"verb": "update", **resource}, action):
            what = f"no role of theirs allows 'update' on the {store.source}"
            raise UserError(f"{caller.name} may not {action}: {what}", 403)


def _is_allowed(may_do: MayDo, caller: Identity, wanted: Mapping[str, str], action: str) -> bool:
    try:
        return may_do(caller, wanted)
    except KubeError as error:
        raise UserError(f"cannot check who may {action}: {error}; try again", 503) from error


ALL: tuple[QueueAction, ...] = ("hold", "release", "move")
OF_OWNERS: tuple[QueueAction, ...] = ("hold", "release")


class QueueChanges:
    """Changes of jobs in queues. For any thread."""

    def __init__(self, answers: QueueAnswers, pushes: ConfigPushes | None) -> None:
        self._answers, self._pushes = answers, pushes

    def make(self, args: QueueArgs, caller: Identity | None, mask: Mask) -> QueuedJob:
        """Make a change. Raises UserError: 403 without the right, 404 for a job that the caller may not see, 409."""
        seen = mask.seen(self._answers.namespaces())
        refusal = _refusal(self._pushes, caller, f"{args.action} {args.job}")
        if refusal is not None:
            if refusal.code != 403 or caller is None or args.action not in OF_OWNERS:
                raise refusal
            name = self._answers.named(args.job, seen)
            if not self._may_update(self._pushes, name, caller):
                raise UserError(
                    f"{caller.name} may not {args.action} {name}: no role of theirs allows 'update' on it, or on the "
                    "configuration",
                    403,
                )
            args = QueueArgs(name, args.action, args.to)
        return mask.queued(self._answers.act(args, seen))

    def allowed(self, job: str, caller: Identity | None) -> tuple[QueueAction, ...]:
        """The changes of a job, by its full name, that a caller may make: by a review or two, which are remembered."""
        pushes = None if self._pushes is None else self._pushes.shown
        if _refusal(pushes, caller, "change jobs") is None:
            return ALL
        try:
            return OF_OWNERS if caller is not None and self._may_update(pushes, job, caller) else ()
        except UserError:
            return ()

    def _may_update(self, pushes: ConfigPushes | None, job: str, caller: Identity) -> bool:
        return pushes is not None and pushes.may_update(caller, self._answers.resource(job))


def _refusal(pushes: ConfigPushes | None, caller: Identity | None, action: str) -> UserError | None:
    """Return why a caller may not change all jobs, as `action` would, None if they may."""
    if pushes is None:
        return UserError("this service takes no changes of queues", 403)
    try:
        pushes.name_of(caller, action)
    except UserError as error:
        return error
    return None
