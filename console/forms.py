"""Forms that change something: read, and taken only if a page of this console has sent them."""

# Without `annotations` of the future: FastAPI reads those of functions that are made within others.
from collections.abc import Collection, Mapping
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from console.people import Person, Seal
from parallax.errors import InvalidNameError

SEE_OTHER = 303
_MOST_FIELDS = 20


def person_of(request: Request) -> Person:
    """Who looks: the guard has asked."""
    person: Person = request.state.person
    return person


async def form_of(request: Request) -> Mapping[str, str]:
    """The fields of a form."""
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError as error:
        raise InvalidNameError(f"the form can't be read: {error}") from error


Form = Annotated[Mapping[str, str], Depends(form_of)]


class SealedForm:
    """Forms of this console.

    Args:
        seal: marks them.
        hosts: names under which a proxy shows the console.
    """

    def __init__(self, seal: Seal, hosts: Collection[str]) -> None:
        self._seal = seal
        self._hosts = hosts

    def sealed(self, request: Request, form: Form) -> Mapping[str, str]:
        """The form, if a page of ours has sent it.

        Raises:
            ForbiddenError: none has.
        """
        origin, host = request.headers.get("origin", ""), request.headers.get("host", "")
        self._seal.check(person_of(request), form.get("seal", ""), origin, host, self._hosts)
        return form

    def seal_of(self, request: Request) -> str:
        """The mark for forms of who looks."""
        return self._seal.of(person_of(request))
