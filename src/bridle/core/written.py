"""Effects that are nothing but a line in the log: the event each of them comes to."""

from ..values import event as e
from .effects import ChangeView, Compact, DropConversation, Nudge, SeekApproval, SwitchModel

Written = ChangeView | Compact | DropConversation | Nudge | SeekApproval | SwitchModel


def event_of(effect: Written) -> e.Event:
    match effect:
        case SeekApproval(call=call, binding=binding, rule=rule, question=asked, expires_at=until):
            return e.ApprovalAsked(
                call_id=call.id, binding=binding, rule=rule, question=asked, expires_at=until
            )
        case Nudge(why=why, words=words):
            return e.Nudged(why=why, words=words)
        case ChangeView(changes=changes, why=why, seat=seat):
            return e.ViewChanged(changes=changes, why=why, seat=seat)
        case SwitchModel(model=model, why=why):
            return e.ModelSwitched(model=model, why=why)
        case DropConversation(conversation=name, seat=seat, why=why):
            return e.ConversationDropped(name=name, seat=seat, why=why)
        case Compact(event=event):
            return event
