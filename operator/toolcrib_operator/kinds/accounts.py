"""Which ServiceAccounts the bindings in effect name, and what is published of them. In memory only.

A token outlives its ServiceAccount, and a recreated one has the same name: replicas compare the token's UID with the
one published here. So that none is missed, the accounts of a group are all of its namespace, or of the cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from toolcrib.resources.bindings import SubjectKind
from toolcrib.wire.publish import PublishedAccount, PublishedBinding, PublishedSubject
from toolcrib_operator.kinds.records import Records
from toolcrib_operator.objects import Entry, Objects, Ref

SERVICE_ACCOUNT = "ServiceAccount"

EVERYBODY = "system:serviceaccounts"
"""The group of all service accounts; with `:namespace` behind it, that of one namespace's."""

Named = tuple[str | None, str | None]
"""Namespace and name; no name: all of the namespace; neither: all of the cluster."""


class Accounts:
    """The ServiceAccounts that published bindings name, kept up as bindings and accounts change."""

    def __init__(self, objects: Objects, records: Records) -> None:
        self._objects, self._records = objects, records
        self._namers: defaultdict[Named, set[Ref]] = defaultdict(set)
        self._due: set[str] = set()

    def bind(self, ref: Ref, old: PublishedBinding | None, new: PublishedBinding | None) -> None:
        """What is published of a binding changes from `old` to `new`."""
        before, after = set(_named(old)), set(_named(new))
        for named in before - after:
            self._namers[named].discard(ref)
            if not self._namers[named]:
                del self._namers[named]
        for named in after - before:
            self._namers[named].add(ref)
        for named in before ^ after:
            self._due.update(self._among(named))

    def changed(self, refs: Iterable[Ref]) -> None:
        """These ServiceAccounts came, went or are others now."""
        self._due.update(ref.key for ref in refs)

    def batch(self) -> tuple[list[PublishedAccount], list[str], set[Ref]]:
        """What to publish since the last batch.

        Accounts that are new or others now, the keys of those that go, and the bindings that name one of them.
        """
        new, gone = [], []
        for key in sorted(self._due):
            account = self._account(key) if self._is_named(key) else None
            record = self._records.get(ref := Ref(SERVICE_ACCOUNT, key))
            if account == (None if record is None else record.published):
                continue
            if account is None:
                self._records.drop(ref)
                gone.append(key)
            else:
                self._records[ref].published = account
                new.append(account)
        self._due.clear()
        keys = (*(account.key for account in new), *gone)
        return new, gone, {ref for key in keys for ref in self.namers(key)}

    def exists(self, key: str) -> bool:
        """Whether there is such a ServiceAccount, named by a binding or not."""
        return self._account(key) is not None

    def namers(self, key: str) -> set[Ref]:
        """Published bindings that name an account, by itself or by a group."""
        return {ref for named in _names_of(key) for ref in self._namers.get(named, ())}

    def _is_named(self, key: str) -> bool:
        return any(named in self._namers for named in _names_of(key))

    def _account(self, key: str) -> PublishedAccount | None:
        entry = self._objects.get(Ref(SERVICE_ACCOUNT, key))
        if entry is None or not is_there(entry):
            return None
        namespace, name = key.split("/", 1)
        return PublishedAccount(namespace=namespace, name=name, uid=entry.uid)

    def _among(self, named: Named) -> Iterable[str]:
        """The keys of the accounts that are meant: those that exist and those that are published."""
        namespace, name = named
        if name is not None:
            return (f"{namespace}/{name}",)
        published = (record.ref.key for record in self._records.of(SERVICE_ACCOUNT))
        known = [*self._objects.versions(SERVICE_ACCOUNT), *published]
        return known if namespace is None else [key for key in known if key.startswith(f"{namespace}/")]


class Declared:
    """The ServiceAccounts of manifests, where no cluster says which ones there are.

    One is missing only where its namespace declares others: manifests that declare none leave that to the cluster.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._declared: defaultdict[str | None, set[str]] = defaultdict(set)
        self._namers: defaultdict[str | None, set[Ref]] = defaultdict(set)
        self._due: set[Ref] = set()

    def bind(self, ref: Ref, old: PublishedBinding | None, new: PublishedBinding | None) -> None:
        """What is published of a binding changes from `old` to `new`."""
        for namespace, _ in _named(old):
            self._namers[namespace].discard(ref)
        for namespace, _ in _named(new):
            self._namers[namespace].add(ref)

    def changed(self, refs: Iterable[Ref]) -> None:
        """These ServiceAccounts came, went or are others now."""
        for ref in refs:
            entry, declared = self._objects.get(ref), self._declared[ref.namespace]
            if entry is not None and is_there(entry):
                declared.add(ref.key)
            else:
                declared.discard(ref.key)
            self._due |= self._namers[ref.namespace]

    def exists(self, key: str) -> bool:
        """Whether there is such a ServiceAccount, or nobody can know."""
        declared = self._declared[key.partition("/")[0]]
        return not declared or key in declared

    def namers(self, key: str) -> set[Ref]:
        """Published bindings that name an account of its namespace, or all accounts."""
        return self._namers[key.partition("/")[0]] | self._namers[None]

    def batch(self) -> tuple[None, list[str], set[Ref]]:
        """Nothing to publish; the bindings that name accounts of namespaces of which some came or went since the last batch."""
        due, self._due = self._due, set()
        return None, [], due


def is_there(account: Entry) -> bool:
    """Whether tokens of a ServiceAccount may be believed: one that is being deleted is gone already."""
    return account.deleting is None and bool(account.uid)


def group_of(subject: PublishedSubject) -> Named | None:
    """The service accounts that a Group of theirs means; None: it is another subject.

    Whatever its issuer: which one is the cluster's is the registry's business, and one account too many does no harm.
    """
    if subject.kind is not SubjectKind.GROUP or subject.name is None:
        return None
    if subject.name == EVERYBODY:
        return (None, None)
    namespace = subject.name.removeprefix(f"{EVERYBODY}:")
    return (namespace, None) if namespace != subject.name and namespace else None


def _named(binding: PublishedBinding | None) -> Iterator[Named]:
    for subject in () if binding is None else binding.subjects:
        group = group_of(subject)
        if group is not None:
            yield group
        elif subject.kind in (SubjectKind.SERVICE_ACCOUNT, SubjectKind.AGENT):
            yield (subject.namespace, subject.name)


def _names_of(key: str) -> tuple[Named, Named, Named]:
    namespace, _, name = key.partition("/")
    return (namespace, name), (namespace, None), (None, None)
