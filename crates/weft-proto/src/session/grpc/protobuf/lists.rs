//! Finds values without a slot of their own: lists, map entries, and the presence of messages.
//!
//! Only programs that read such values have this walk. It passes over the payload a second time, after the [`Walk`] of
//! the columns. Each element is a message with columns, which has a `Walk` of its own.
//!
//! The result is what a decoder would find. Occurrences of the enclosing messages are merged, so their lists are
//! concatenated. Numbers may be packed or not, even both in one message. Of map entries with the same key, the last one
//! counts. A member of a oneof clears what the displaced members held.

use super::walk::{
    Op, Walk, WalkBuilder, WalkError, check_utf8, closed_values, fields_along, read_number, wire_type,
};
use super::wire::{self, Malformed, Reason};
use std::collections::BTreeMap;
use weft_core::abi::Slot;
use weft_core::inputs::InputSet;
use weft_core::list::{self, EntryKey, ListCell};
use weft_core::schema::{Field, FieldKind, Presence, Schema};

/// Collects the values that a walk over lists reads.
#[derive(Debug)]
pub struct ListsBuilder<'s> {
    schema: &'s Schema,
    /// Message types by path. The root is first; a child comes after its parent.
    drafts: Vec<Draft>,
    selectors: Vec<Selector>,
    /// The used slots.
    mask: InputSet,
}

/// A compiled walk over the lists of a message type. It is immutable and cheap to share.
#[derive(Clone, Debug)]
pub struct Lists {
    /// One node per enclosing message of a value. The root is first.
    nodes: Box<[Node]>,
    selectors: Box<[Selector]>,
    /// The slots that the walk fills.
    mask: InputSet,
}

/// A value that the walk reads.
#[derive(Clone, Debug)]
struct Selector {
    slot: u8,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// The presence of a message.
    Presence,
    /// The elements of a list.
    Elements { element: Element, n_members: usize, max: u64 },
    /// The entries of a map.
    Entries { entry: Entry, n_members: usize, max: u64 },
    /// The value of the entry with this key.
    Value { entry: Entry, wanted_key: EntryKey },
}

/// How to read an entry of a map: its members, then its key.
#[derive(Clone, Debug)]
struct Entry {
    walk: Walk,
    /// The members that are never absent.
    implicit: InputSet,
    key: Op,
    /// The values of a closed enum that is the map's value. An entry with another value is an unknown field of the
    /// message.
    closed: Option<Box<[i32]>>,
}

/// How to read an element.
#[derive(Clone, Debug)]
enum Element {
    /// A number, text or bytes; of a closed enum, one of these values.
    Scalar(Op, Option<Box<[i32]>>),
    /// A message whose members are columns, and the members that are never absent.
    Message(Walk, InputSet),
}

/// The known fields of a message type on one path.
#[derive(Clone, Debug)]
struct Node {
    actions: BTreeMap<u32, Action>,
    depth: usize,
}

/// The action at a known field.
#[derive(Clone, Debug, Default)]
struct Action {
    /// The values that the field is part of: indexes into [`Lists::selectors`].
    gives: Vec<usize>,
    /// The node of a message that contains values.
    child: Option<usize>,
    /// The values that it clears, as a member of a oneof.
    clears: Vec<usize>,
    /// Its elements are packed into one field.
    is_packed: bool,
    /// The values of a oneof member's closed enum. With another value the field is an unknown field.
    closed: Option<Box<[i32]>>,
}

#[derive(Debug)]
struct Draft {
    message: usize,
    parent: usize,
    depth: usize,
    /// The fields by number: the values that they are part of, and the draft of their message.
    fields: BTreeMap<u32, (Vec<usize>, Option<usize>)>,
}

/// The values found so far, by index into [`Lists::selectors`].
#[derive(Clone, Debug, Default)]
struct ListState {
    /// Number of elements, or of entries with different keys; for a presence or a map value, 0 or 1.
    n: u64,
    /// The cells of elements; `None` is absent.
    cells: Vec<Option<Slot>>,
    /// The index of each entry's element, by key.
    keys: BTreeMap<EntryKey, usize>,
    /// The value of an entry; `None` if the entry does not contain it.
    value: Option<Slot>,
}

impl<'s> ListsBuilder<'s> {
    /// A builder for the message type at this index of [`Schema::messages`].
    pub fn new(schema: &'s Schema, message: usize) -> Self {
        let root = Draft { message, parent: 0, depth: 0, fields: BTreeMap::new() };
        Self { schema, drafts: vec![root], selectors: Vec::new(), mask: InputSet::EMPTY }
    }

    /// Sets `slot` to whether there is a message at `path`.
    ///
    /// # Errors
    /// There is no message at this path, or it is repeated.
    pub fn present(&mut self, path: &[&str], slot: usize) -> Result<(), WalkError> {
        let fields = self.resolve(path)?;
        let last = fields[fields.len() - 1];
        match last.kind {
            _ if last.presence == Presence::Repeated => Err(WalkError::Repeated { field: path.join(".") }),
            FieldKind::Message(_) => {
                self.add(&fields, slot, Kind::Presence);
                Ok(())
            }
            _ => Err(WalkError::NotAMessage { field: path.join(".") }),
        }
    }

    /// Reads the list at `path` into `slot`: the `members` of each element, by their paths within it. A list with more
    /// than
    /// `max` elements gives only its length.
    ///
    /// # Errors
    /// There is no list at this path, or a member is not a column of its elements.
    pub fn list(
        &mut self,
        path: &[&str],
        members: &[Vec<&str>],
        max: u64,
        slot: usize,
    ) -> Result<(), WalkError> {
        let fields = self.resolve(path)?;
        let last = fields[fields.len() - 1];
        if last.presence != Presence::Repeated {
            return Err(WalkError::NotAList { field: path.join(".") });
        }
        let n_members = members.len();
        let kind = match last.kind {
            FieldKind::Message(inner) if self.schema.messages[inner].is_map_entry => {
                Kind::Entries { entry: self.entry(inner, members)?, n_members, max }
            }
            FieldKind::Message(inner) => {
                let (walk, implicit) = self.columns(inner, members)?;
                Kind::Elements { element: Element::Message(walk, implicit), n_members, max }
            }
            kind => {
                let element = Element::Scalar(Op::of(kind), self.closed(kind));
                Kind::Elements { element, n_members, max }
            }
        };
        self.add(&fields, slot, kind);
        Ok(())
    }

    /// Reads into `slot` the value of the map entry with this key at `path`; the last one, if there are several.
    /// Returns the field of the value.
    ///
    /// # Errors
    /// There is no map at this path.
    pub fn value(
        &mut self,
        path: &[&str],
        wanted_key: EntryKey,
        slot: usize,
    ) -> Result<&'s Field, WalkError> {
        let fields = self.resolve(path)?;
        let last = fields[fields.len() - 1];
        match last.kind {
            FieldKind::Message(inner) if self.schema.messages[inner].is_map_entry => {
                let entry = self.entry(inner, &[vec!["value"]])?;
                self.add(&fields, slot, Kind::Value { entry, wanted_key });
                let value = self.schema.messages[inner].field("value");
                value.ok_or_else(|| WalkError::NotAList { field: path.join(".") })
            }
            _ => Err(WalkError::NotAList { field: path.join(".") }),
        }
    }

    /// Compiles the walk.
    pub fn build(self) -> Lists {
        let mut beneath: Vec<Vec<usize>> = vec![Vec::new(); self.drafts.len()];
        for (index, draft) in self.drafts.iter().enumerate().rev() {
            let own = draft.fields.values().flat_map(|(gives, _)| gives).copied().collect::<Vec<_>>();
            beneath[index].extend(own);
            if index > 0 {
                let all = beneath[index].clone();
                beneath[draft.parent].extend(all);
            }
        }
        let nodes = self.drafts.iter().map(|draft| self.node(draft, &beneath)).collect();
        Lists { nodes, selectors: self.selectors.into(), mask: self.mask }
    }

    /// The fields along `path`; all but the last are singular messages.
    fn resolve(&self, path: &[&str]) -> Result<Vec<&'s Field>, WalkError> {
        fields_along(self.schema, self.drafts[0].message, path)
    }

    /// The walk over an element, and the members that are never absent.
    fn columns(&self, message: usize, members: &[Vec<&str>]) -> Result<(Walk, InputSet), WalkError> {
        let mut builder = WalkBuilder::new(self.schema, message);
        let mut implicit = InputSet::EMPTY;
        for (slot, member) in members.iter().enumerate() {
            let (_, presence) = builder.column(member, slot)?;
            implicit.set(slot, presence == Presence::Implicit);
        }
        Ok((builder.build(), implicit))
    }

    /// Compiles the walk over the entries of a map: the selected members, and the key in the slot after them.
    fn entry(&self, message: usize, members: &[Vec<&str>]) -> Result<Entry, WalkError> {
        let mut builder = WalkBuilder::new(self.schema, message);
        let mut implicit = InputSet::EMPTY;
        for (slot, member) in members.iter().enumerate() {
            // In an entry, an absent key or value means zero.
            let mut is_implicit = true;
            if **member != ["key"] {
                is_implicit = builder.column(member, slot)?.1 == Presence::Implicit || **member == ["value"];
            }
            implicit.set(slot, is_implicit);
        }
        let key = Op::of(builder.column(&["key"], members.len())?.0);
        let value = self.schema.messages[message].field("value");
        let closed = value.and_then(|value| self.closed(value.kind));
        Ok(Entry { walk: builder.build(), implicit, key, closed })
    }

    /// The values of a closed enum, sorted.
    fn closed(&self, kind: FieldKind) -> Option<Box<[i32]>> {
        let FieldKind::Enum(at) = kind else { return None };
        closed_values(&self.schema.enums[at])
    }

    /// Registers a selector at the end of a path, and creates the nodes of the messages on the way.
    fn add(&mut self, fields: &[&Field], slot: usize, kind: Kind) {
        let mut at = 0;
        let (last, parents) = fields.split_last().expect("a path has a field");
        for field in parents {
            let FieldKind::Message(message) = field.kind else { unreachable!("resolve() saw a message") };
            at = match self.drafts[at].fields.get(&field.number).and_then(|(_, child)| *child) {
                Some(child) => child,
                None => {
                    let (child, depth) = (self.drafts.len(), self.drafts[at].depth + 1);
                    self.drafts.push(Draft { message, parent: at, depth, fields: BTreeMap::new() });
                    self.drafts[at].fields.entry(field.number).or_default().1 = Some(child);
                    child
                }
            };
        }
        self.drafts[at].fields.entry(last.number).or_default().0.push(self.selectors.len());
        self.selectors.push(Selector { slot: slot as u8, kind });
        self.mask.insert(slot);
    }

    /// Compiles a draft into a node. `beneath` has, for each draft, the selectors inside it.
    fn node(&self, draft: &Draft, beneath: &[Vec<usize>]) -> Node {
        let fields = &self.schema.messages[draft.message].fields;
        let held = |field: &Field| {
            let (gives, child) = draft.fields.get(&field.number).cloned().unwrap_or_default();
            let inside = child.map_or(&[][..], |child| &beneath[child]).to_vec();
            (gives.iter().chain(&inside).copied().collect::<Vec<_>>(), gives, child)
        };
        let mut actions = BTreeMap::new();
        for field in fields {
            let others = fields.iter().filter(|other| {
                field.oneof.is_some() && other.oneof == field.oneof && other.number != field.number
            });
            let clears: Vec<usize> = others.flat_map(|other| held(other).0).collect();
            let (all, gives, child) = held(field);
            if all.is_empty() && clears.is_empty() {
                continue;
            }
            let is_repeated = field.presence == Presence::Repeated;
            let closed = self.closed(field.kind).filter(|_| !is_repeated);
            let action = Action { gives, child, clears, is_packed: false, closed };
            let wire_type = wire_type(field);
            let may_be_packed = is_repeated && ![wire::LEN, wire::GROUP].contains(&wire_type);
            if may_be_packed {
                let packed = Action { is_packed: true, ..action.clone() };
                actions.insert(wire::make_tag(field.number, wire::LEN), packed);
            }
            actions.insert(wire::make_tag(field.number, wire_type), action);
        }
        Node { actions, depth: draft.depth }
    }
}

impl Lists {
    /// The slots that the walk fills.
    pub fn mask(&self) -> InputSet {
        self.mask
    }

    /// Reads the values of `payload` into their slots. Lists are appended to `text`, and their slots contain the
    /// position in it. Slots of bytes refer to the payload.
    ///
    /// # Errors
    ///
    /// The payload, or a message on a path or in a list, is malformed. Then the slots are meaningless.
    pub fn run(
        &self,
        payload: &[u8],
        slots: &mut [Slot],
        present: &mut InputSet,
        text: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        let mut found = vec![ListState::default(); self.selectors.len()];
        self.walk(&self.nodes[0], payload, 0, &mut found)?;
        for (selector, found) in self.selectors.iter().zip(found) {
            let slot = usize::from(selector.slot);
            let is_there = match &selector.kind {
                Kind::Presence => {
                    slots[slot] = Slot { a: found.n, b: 0 };
                    true
                }
                Kind::Value { .. } => {
                    slots[slot] = found.value.unwrap_or_default();
                    found.n > 0
                }
                Kind::Elements { element, n_members, max } => {
                    let is_bytes = |member| element.is_bytes(member);
                    slots[slot] = found.write(payload, (*n_members, *max), is_bytes, text);
                    true
                }
                Kind::Entries { entry, n_members, max } => {
                    let is_bytes = |member| entry.walk.column_op(member).unwrap_or(entry.key).is_bytes();
                    slots[slot] = found.write(payload, (*n_members, *max), is_bytes, text);
                    true
                }
            };
            present.set(slot, is_there);
        }
        Ok(())
    }

    /// Walks `data[pos..]`, one occurrence of `node`.
    fn walk(
        &self,
        node: &Node,
        data: &[u8],
        mut pos: usize,
        found: &mut [ListState],
    ) -> Result<(), Malformed> {
        while pos < data.len() {
            let at = pos;
            let tag = wire::tag(data, &mut pos)?;
            let Some(action) = node.actions.get(&tag) else {
                wire::skip(data, &mut pos, tag, at, node.depth)?;
                continue;
            };
            if let Some(closed) = &action.closed
                && closed.binary_search(&(wire::varint(data, &mut { pos })? as i32)).is_err()
            {
                wire::skip(data, &mut pos, tag, at, node.depth)?;
                continue;
            }
            for displaced in &action.clears {
                found[*displaced] = ListState::default();
            }
            let from = pos;
            let body = match tag & 7 {
                wire::LEN => {
                    let end = wire::span(data, &mut pos)?;
                    (core::mem::replace(&mut pos, end), end)
                }
                wire::GROUP => delimited(data, &mut pos, tag, node.depth)?,
                _ => {
                    wire::skip(data, &mut pos, tag, at, node.depth)?;
                    for selector in &action.gives {
                        self.selectors[*selector].take_number(data, from, &mut found[*selector])?;
                    }
                    continue;
                }
            };
            if let Some(child) = action.child {
                self.walk(&self.nodes[child], &data[..body.1], body.0, found)?;
            }
            for selector in &action.gives {
                self.selectors[*selector].take(data, body, action.is_packed, &mut found[*selector])?;
            }
        }
        Ok(())
    }
}

impl Selector {
    /// Reads a length-delimited field: `data[begin..end]`.
    fn take(
        &self,
        data: &[u8],
        (begin, end): (usize, usize),
        is_packed: bool,
        found: &mut ListState,
    ) -> Result<(), Malformed> {
        match &self.kind {
            Kind::Presence => found.n = 1,
            Kind::Elements { element: Element::Scalar(..), .. } if is_packed => {
                let mut pos = begin;
                while pos < end {
                    pos = self.take_number(&data[..end], pos, found)?;
                }
            }
            Kind::Elements { element: Element::Scalar(op, _), n_members, max } => {
                if *op == Op::Text {
                    check_utf8(data, begin, end - begin)?;
                }
                found.add(*max, *n_members, |_| Some(Slot { a: begin as u64, b: (end - begin) as u64 }));
            }
            Kind::Elements { element: Element::Message(walk, implicit), n_members, max } => {
                let (slots, present) = run_at(walk, *n_members, data, (begin, end))?;
                let present = present | *implicit;
                found.add(*max, *n_members, |member| (present.contains(member)).then_some(slots[member]));
            }
            Kind::Entries { entry, .. } | Kind::Value { entry, .. }
                if entry.is_unknown(data, (begin, end))? => {}
            Kind::Entries { entry, n_members, max } => {
                let (slots, present) = run_at(&entry.walk, n_members + 1, data, (begin, end))?;
                let present = present | entry.implicit;
                let of_key = slots[*n_members];
                found.put(key_of(data, entry.key, of_key), *max, *n_members, |member| {
                    let slot = if entry.walk.column_op(member).is_some() { slots[member] } else { of_key };
                    (present.contains(member)).then_some(slot)
                });
            }
            Kind::Value { entry, wanted_key } => {
                let (slots, _) = run_at(&entry.walk, 2, data, (begin, end))?;
                if key_of(data, entry.key, slots[1]) == *wanted_key {
                    (found.n, found.value) = (1, Some(slots[0]));
                }
            }
        }
        Ok(())
    }

    /// Reads a number at `pos`; returns the position of the next one.
    fn take_number(&self, data: &[u8], mut pos: usize, found: &mut ListState) -> Result<usize, Malformed> {
        if let Kind::Elements { element: Element::Scalar(op, closed), n_members, max } = &self.kind {
            let number = read_number(*op, data, &mut pos)?;
            if closed.as_ref().is_none_or(|values| values.binary_search(&(number as i32)).is_ok()) {
                found.add(*max, *n_members, |_| Some(Slot { a: number, b: 0 }));
            }
        }
        Ok(pos)
    }
}

impl ListState {
    /// Appends an element.
    fn add(&mut self, max: u64, n_members: usize, cell: impl Fn(usize) -> Option<Slot>) {
        self.n += 1;
        if self.n <= max {
            self.cells.extend((0..n_members).map(cell));
        } else {
            self.cells = Vec::new();
        }
    }

    /// Stores an entry; replaces one with the same key.
    fn put(&mut self, key: EntryKey, max: u64, n_members: usize, cell: impl Fn(usize) -> Option<Slot>) {
        // Beyond the limit only the fact matters, not the number.
        if self.n > max {
            return;
        }
        let next = self.keys.len();
        let at = *self.keys.entry(key).or_insert(next);
        if at == next {
            self.add(max, n_members, cell);
        } else {
            for member in 0..n_members {
                self.cells[at * n_members + member] = cell(member);
            }
        }
    }

    /// Appends the list to `text`; the slot contains its position.
    fn write(
        &self,
        payload: &[u8],
        (n_members, max): (usize, u64),
        is_bytes: impl Fn(usize) -> bool,
        text: &mut Vec<u8>,
    ) -> Slot {
        let cells: &[Option<Slot>] = if self.n <= max { &self.cells } else { &[] };
        let cells = cells.iter().enumerate().map(|(at, cell)| match cell {
            None => ListCell::Absent,
            Some(Slot { a, b }) if is_bytes(at % n_members) => {
                ListCell::Bytes(&payload[*a as usize..][..*b as usize])
            }
            Some(Slot { a, .. }) => ListCell::Number(*a),
        });
        let start = text.len();
        list::write(self.n, cells, text);
        Slot { a: start as u64, b: (text.len() - start) as u64 }
    }
}

impl Entry {
    /// Whether an entry's value is not in its closed enum: then the entry is an unknown field.
    fn is_unknown(&self, data: &[u8], (begin, end): (usize, usize)) -> Result<bool, Malformed> {
        let Some(closed) = &self.closed else { return Ok(false) };
        let (mut pos, mut is_unknown) = (begin, false);
        let data = &data[..end];
        while pos < end {
            let at = pos;
            let tag = wire::tag(data, &mut pos)?;
            if tag == wire::make_tag(2, wire::VARINT) {
                let value = wire::varint(data, &mut { pos })? as i32;
                is_unknown = closed.binary_search(&value).is_err();
            }
            wire::skip(data, &mut pos, tag, at, 0)?;
        }
        Ok(is_unknown)
    }
}

impl Element {
    fn is_bytes(&self, member: usize) -> bool {
        match self {
            Self::Scalar(op, _) => op.is_bytes(),
            Self::Message(walk, _) => walk.column_op(member).is_some_and(Op::is_bytes),
        }
    }
}

/// The body of a delimited message whose tag is in front of `pos`. Moves `pos` past its end tag.
fn delimited(data: &[u8], pos: &mut usize, tag: u32, depth: usize) -> Result<(usize, usize), Malformed> {
    let begin = *pos;
    let end_tag = wire::make_tag(tag >> 3, wire::GROUP_END);
    while *pos < data.len() {
        let at = *pos;
        let tag = wire::tag(data, pos)?;
        if tag == end_tag {
            return Ok((begin, at));
        }
        wire::skip(data, pos, tag, at, depth + 1)?;
    }
    wire::malformed(*pos, Reason::Truncated)
}

/// Walks the message `data[begin..end]`. Offsets count from the start of `data`.
fn run_at(
    walk: &Walk,
    n_slots: usize,
    data: &[u8],
    (begin, end): (usize, usize),
) -> Result<(Vec<Slot>, InputSet), Malformed> {
    let (mut slots, mut present) = (vec![Slot::default(); n_slots], InputSet::EMPTY);
    let further = |malformed: Malformed| Malformed { offset: malformed.offset + begin, ..malformed };
    walk.run(&data[begin..end], &mut slots, &mut present).map_err(further)?;
    for slot in present.iter().filter(|slot| walk.column_op(*slot).is_some_and(Op::is_bytes)) {
        slots[slot].a += begin as u64;
    }
    Ok((slots, present))
}

/// Returns the key of a map entry from its slot.
fn key_of(data: &[u8], op: Op, slot: Slot) -> EntryKey {
    match op {
        Op::Text => {
            let bytes = &data[slot.a as usize..][..slot.b as usize];
            // The walk has validated it as UTF-8.
            EntryKey::Text(String::from_utf8_lossy(bytes).into_owned())
        }
        _ => EntryKey::Number(slot.a),
    }
}
