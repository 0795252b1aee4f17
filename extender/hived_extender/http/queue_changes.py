"""Changes of jobs in queues in a caller's name: who may make which.

Whoever may change the configuration may change all jobs that they see. Owners hold and release their own jobs: those
that a role of theirs lets them update. A place in the order concerns others too, so owners do not move jobs.
"""

from hived.values.errors import UserError
from hived_extender.api.queues import QueueAction, QueueArgs, QueuedJob
from hived_extender.http.config_pushes import ConfigPushes
from hived_extender.http.identities import Identity
from hived_extender.http.masking import Mask
from hived_extender.queues.answering import QueueAnswers

ALL: tuple[QueueAction, ...] = ("hold", "release", "move")
OF_OWNERS: tuple[QueueAction, ...] = ("hold", "release")


class QueueChanges:
    """See the module. For any thread."""

    def __init__(self, answers: QueueAnswers, pushes: ConfigPushes | None) -> None:
        self._answers, self._pushes = answers, pushes

    def make(self, args: QueueArgs, caller: Identity | None, mask: Mask) -> QueuedJob:
        """Make a change. Raises UserError: 403 without the right, 404 for a job that the caller may not see, 409."""
        seen = mask.seen(self._answers.namespaces())
        refusal = self._refusal(caller, f"{args.action} {args.job}")
        if refusal is not None:
            if refusal.code != 403 or caller is None or args.action not in OF_OWNERS:
                raise refusal
            name = self._answers.named(args.job, seen)
            if not self._may_update(name, caller):
                raise UserError(
                    f"{caller.name} may not {args.action} {name}: no role of theirs allows 'update' on it, or on the "
                    "configuration",
                    403,
                )
            args = QueueArgs(name, args.action)
        return mask.queued(self._answers.act(args, seen))

    def allowed(self, job: str, caller: Identity | None) -> tuple[QueueAction, ...]:
        """The changes of a job, by its full name, that a caller may make. Costs a review or two."""
        if self._refusal(caller, "change jobs") is None:
            return ALL
        try:
            return OF_OWNERS if caller is not None and self._may_update(job, caller) else ()
        except UserError:
            return ()

    def _refusal(self, caller: Identity | None, action: str) -> UserError | None:
        """Why a caller may not change all jobs, as `action` would, None if they may."""
        if self._pushes is None:
            return UserError("this service takes no changes of queues", 403)
        try:
            self._pushes.name_of(caller, action)
        except UserError as error:
            return error
        return None

    def _may_update(self, job: str, caller: Identity) -> bool:
        return self._pushes is not None and self._pushes.may_update(caller, self._answers.resource(job))
