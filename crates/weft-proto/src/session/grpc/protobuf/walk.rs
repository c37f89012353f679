//! The compiled tag walk: reads selected fields of a Protobuf message into slots, in one pass over its bytes.

use super::wire::{self, DEPTH_MAX, Malformed, Reason};
use core::fmt;
use std::collections::BTreeMap;
use weft_core::abi::Slot;
use weft_core::inputs::InputSet;
use weft_core::limits::INPUTS_MAX;
use weft_core::schema::{Enum, Field, FieldKind, Presence, Schema};

/// Maximum number of columns of a walk.
pub const SLOTS_MAX: usize = INPUTS_MAX;
/// A slot number fits in a byte.
const _: () = assert!(SLOTS_MAX <= 1 << u8::BITS);

/// Collects the columns that a walk reads.
#[derive(Debug)]
pub struct WalkBuilder<'s> {
    schema: &'s Schema,
    /// Message types by path. The root is first; a child comes after its parent.
    drafts: Vec<Draft>,
    /// The used slots.
    mask: InputSet,
}

/// A compiled walk over a message type. It is immutable and cheap to share.
#[derive(Clone, Debug)]
pub struct Walk {
    /// One node per message on the path of a column. The root is first; a child comes after its parent.
    pub(super) nodes: Box<[Node]>,
    /// One per column, in order of addition.
    pub(super) columns: Box<[Column]>,
    /// Number of oneofs in the nodes' actions.
    pub(super) n_oneofs: usize,
    /// The values of the closed enums in the nodes' actions, each list sorted.
    closed: Box<[Box<[i32]>]>,
    /// The slots that the walk fills.
    mask: InputSet,
    /// Number of slots: the largest slot plus one.
    n_slots: usize,
    /// Number of words of a slot set; one for most messages.
    n_words: usize,
    /// The slots that must be UTF-8.
    text: InputSet,
}

/// Why a walk cannot read a column: a fault of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalkError {
    /// The path is empty.
    EmptyPath,
    /// The message has no such field.
    UnknownField {
        /// The full name of the message.
        message: String,
        /// The name that it does not have.
        field: String,
    },
    /// A repeated field (or a map) has many values, but a column has one.
    Repeated {
        /// The field.
        field: String,
    },
    /// The field is singular, not a list.
    NotAList {
        /// The field.
        field: String,
    },
    /// The path continues, but this field has no fields.
    NotAMessage {
        /// The field.
        field: String,
    },
    /// The path ends at a message, but columns hold scalars.
    IsAMessage {
        /// The field.
        field: String,
    },
    /// The path is longer than [`DEPTH_MAX`].
    TooDeep,
    /// The slot is not below [`SLOTS_MAX`].
    SlotTooLarge {
        /// The slot.
        slot: usize,
    },
    /// Another column uses the slot.
    SlotTaken {
        /// The slot.
        slot: usize,
    },
    /// The field has another slot.
    FieldTaken {
        /// The field.
        field: String,
        /// Its slot.
        slot: usize,
    },
}

/// A message type on one path.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// For each one-byte tag, the index in `actions`, or [`NONE`].
    one_byte_tags: [u8; 128],
    /// The known fields, sorted by tag.
    pub(super) actions: Box<[Action]>,
    /// The node of the enclosing message; the root's is itself.
    pub(super) parent: usize,
    /// The tag of this message within its parent. 0 for the root.
    pub(super) tag: u32,
    /// The oneof of this message, among all of the walk's.
    pub(super) oneof: Option<u16>,
    /// Number of enclosing messages.
    pub(super) depth: usize,
    /// The end tag if it is delimited, or 0, which is not a tag.
    pub(super) end: u32,
}

/// The action at a known field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Action {
    pub(super) tag: u32,
    pub(super) op: Op,
    /// The slot of a scalar.
    pub(super) slot: u8,
    /// The node of a message.
    pub(super) child: u16,
    /// The oneof of the field, among all of the walk's.
    pub(super) oneof: Option<u16>,
    /// The slots that the field clears, as a member of its oneof.
    clears: InputSet,
    /// The slot that becomes present together with the message, such as the value of a wrapper.
    opens: Option<u8>,
    /// The values of the field's closed enum, among all of the walk's.
    closed: Option<u32>,
}

/// A scalar field with a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) slot: u8,
    pub(super) node: usize,
    pub(super) tag: u32,
    pub(super) op: Op,
    pub(super) oneof: Option<u16>,
    pub(super) closed: Option<u32>,
    /// The column is bound to the wrapper of its value.
    pub(super) is_wrapped: bool,
}

/// The encoding of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Bool,
    /// `int32` and enums.
    Int32,
    Uint32,
    /// `int64` and `uint64`.
    Int64,
    Sint32,
    Sint64,
    Fixed32,
    Sfixed32,
    Float,
    /// `fixed64`, `sfixed64` and `double`.
    Fixed64,
    Text,
    Bytes,
    /// A message that contains columns.
    Message,
    /// A member of a oneof that is not read, but clears others that are.
    Unread,
}

const NONE: u8 = u8::MAX;

#[derive(Debug)]
struct Draft {
    message: usize,
    parent: usize,
    depth: usize,
    fields: BTreeMap<u32, Target>,
    /// The slot of a column that is bound to this message, a wrapper.
    wrapped: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Target {
    Leaf(usize),
    Child(usize),
}

impl<'s> WalkBuilder<'s> {
    /// A builder for the message type at this index of [`Schema::messages`].
    ///
    /// # Panics
    ///
    /// If the schema has no such message.
    pub fn new(schema: &'s Schema, message: usize) -> Self {
        assert!(message < schema.messages.len(), "no message {message} in the schema");
        let root = Draft { message, parent: 0, depth: 0, fields: BTreeMap::new(), wrapped: None };
        Self { schema, drafts: vec![root], mask: InputSet::EMPTY }
    }

    /// Reads the scalar field at `path` (field names, from the root) into `slot`. Returns the kind of the slot's value,
    /// and whether it may be absent. A wrapper (`google.protobuf.StringValue`) is read as the scalar in it. On an error
    /// the builder is unchanged.
    pub fn column(&mut self, path: &[&str], slot: usize) -> Result<(FieldKind, Presence), WalkError> {
        if slot >= SLOTS_MAX {
            return Err(WalkError::SlotTooLarge { slot });
        }
        if self.mask.contains(slot) {
            return Err(WalkError::SlotTaken { slot });
        }
        let mut parents = self.resolve(path)?;
        let mut leaf = parents.pop().expect("the path is not empty");
        let held = self.schema.scalar(leaf).expect("resolve() saw a scalar or a wrapper");
        let is_wrapped = if let FieldKind::Message(wrapper) = leaf.kind {
            parents.push(leaf);
            leaf = self.schema.messages[wrapper].wrapped().expect("resolve() saw a wrapper");
            true
        } else {
            false
        };
        if let Some(taken) = self.slot_of(&parents, leaf.number) {
            return Err(WalkError::FieldTaken { field: path.join("."), slot: taken });
        }
        let mut at = 0;
        for field in parents {
            at = self.child(at, field);
        }
        self.drafts[at].fields.insert(leaf.number, Target::Leaf(slot));
        self.drafts[at].wrapped = is_wrapped.then_some(slot);
        self.mask.insert(slot);
        Ok(held)
    }

    /// Compiles the walk.
    pub fn build(self) -> Walk {
        let beneath = self.slots_beneath();
        let mut oneofs = Oneofs::default();
        let mut closed = ClosedEnums::default();
        let mut columns = Vec::new();
        let mut nodes: Vec<Node> = Vec::with_capacity(self.drafts.len());
        for (index, draft) in self.drafts.iter().enumerate() {
            let actions = self.actions(index, &beneath, &mut oneofs, &mut closed);
            columns.extend(actions.iter().filter(|a| a.op.is_scalar()).map(|a| Column {
                slot: a.slot,
                node: index,
                tag: a.tag,
                op: a.op,
                oneof: a.oneof,
                closed: a.closed,
                is_wrapped: draft.wrapped.is_some(),
            }));
            let around = nodes.get(draft.parent);
            let held = around.and_then(|n: &Node| n.actions.iter().find(|a| a.leads_to(index)));
            let (tag, oneof) = held.map_or((0, None), |a| (a.tag, a.oneof));
            nodes.push(Node::new(actions, draft, tag, oneof));
        }
        let text = columns.iter().filter(|c| c.op == Op::Text).map(|c| c.slot).collect();
        let n_oneofs = oneofs.0.len();
        let closed = closed.values.into();
        let mask = self.mask;
        let n_slots = mask.iter().last().map_or(0, |last| last + 1);
        let n_words = n_slots.div_ceil(64);
        Walk { nodes: nodes.into(), columns: columns.into(), n_oneofs, closed, mask, n_slots, n_words, text }
    }

    /// The fields along `path`; the last one is a scalar or a wrapper, the others are messages.
    fn resolve(&self, path: &[&str]) -> Result<Vec<&'s Field>, WalkError> {
        let fields = fields_along(self.schema, self.drafts[0].message, path)?;
        let last = fields[fields.len() - 1];
        match last.kind {
            _ if last.presence == Presence::Repeated => Err(WalkError::Repeated { field: path.join(".") }),
            FieldKind::Message(_) if self.schema.scalar(last).is_none() => {
                Err(WalkError::IsAMessage { field: path.join(".") })
            }
            _ => Ok(fields),
        }
    }

    /// The slot of the field `number` beneath `parents`, if it has one.
    fn slot_of(&self, parents: &[&Field], number: u32) -> Option<usize> {
        let mut at = 0;
        for field in parents {
            let Some(&Target::Child(child)) = self.drafts[at].fields.get(&field.number) else { return None };
            at = child;
        }
        match self.drafts[at].fields.get(&number) {
            Some(&Target::Leaf(slot)) => Some(slot),
            _ => None,
        }
    }

    /// The draft of the message in `field` of the draft `parent`; created if missing.
    fn child(&mut self, parent: usize, field: &Field) -> usize {
        let FieldKind::Message(message) = field.kind else { unreachable!("resolve() saw a message") };
        if let Some(&Target::Child(child)) = self.drafts[parent].fields.get(&field.number) {
            return child;
        }
        let index = self.drafts.len();
        let depth = self.drafts[parent].depth + 1;
        self.drafts.push(Draft { message, parent, depth, fields: BTreeMap::new(), wrapped: None });
        self.drafts[parent].fields.insert(field.number, Target::Child(index));
        index
    }

    /// Returns, for each draft, the slots in it and beneath it.
    fn slots_beneath(&self) -> Vec<InputSet> {
        let mut masks = vec![InputSet::EMPTY; self.drafts.len()];
        for (index, draft) in self.drafts.iter().enumerate().rev() {
            for target in draft.fields.values() {
                if let Target::Leaf(slot) = target {
                    masks[index].insert(*slot);
                }
            }
            if index > 0 {
                let own = masks[index];
                masks[draft.parent] |= own;
            }
        }
        masks
    }

    /// Returns the actions for the known fields of a draft: those on the path of a column, and the other members of
    /// their oneofs.
    fn actions(
        &self,
        index: usize,
        beneath: &[InputSet],
        oneofs: &mut Oneofs,
        closed: &mut ClosedEnums,
    ) -> Vec<Action> {
        let draft = &self.drafts[index];
        let slots = |field: &Field| match draft.fields.get(&field.number) {
            Some(&Target::Leaf(slot)) => InputSet::of(slot),
            Some(&Target::Child(child)) => beneath[child],
            None => InputSet::EMPTY,
        };
        let fields = &self.schema.messages[draft.message].fields;
        // By oneof, the slots of all its members that are read.
        let mut of_oneof: BTreeMap<u32, InputSet> = BTreeMap::new();
        for field in fields.iter().filter(|field| draft.fields.contains_key(&field.number)) {
            if let Some(oneof) = field.oneof {
                *of_oneof.entry(oneof).or_default() |= slots(field);
            }
        }
        let mut actions = Vec::new();
        for field in fields {
            let target = draft.fields.get(&field.number);
            let of_members = field.oneof.and_then(|oneof| of_oneof.get(&oneof));
            if target.is_none() && of_members.is_none() {
                continue;
            }
            let (op, slot, child) = match target {
                Some(&Target::Leaf(slot)) => (Op::of(field.kind), slot as u8, 0),
                Some(&Target::Child(child)) => (Op::Message, 0, child as u16),
                None => (Op::Unread, 0, 0),
            };
            let opened = if op == Op::Message { self.drafts[usize::from(child)].wrapped } else { None };
            actions.push(Action {
                tag: wire::make_tag(field.number, wire_type(field)),
                op,
                slot,
                child,
                oneof: field.oneof.map(|oneof| oneofs.id(index, oneof)),
                clears: of_members.map_or(InputSet::EMPTY, |all| *all & !slots(field)),
                opens: opened.map(|slot| slot as u8),
                closed: match field.kind {
                    FieldKind::Enum(at) => closed.id(at, &self.schema.enums[at]),
                    _ => None,
                },
            });
        }
        actions.sort_by_key(|a| a.tag);
        actions
    }
}

impl Walk {
    /// Finds the columns in `payload`, a message of the type of the walk.
    ///
    /// For `string` and `bytes`, `a` is the offset in `payload` and `b` the length, both in bytes. For the other kinds
    /// `a` is the value: integers and enums as 64 bits (signed ones sign-extended), booleans 0 or 1, `double` and
    /// `float` as the bits of an `f64`. Slot i is in `present` if it was on the wire; if not, the slot is zero. Slots
    /// of other walks stay unchanged, in `present` as well.
    ///
    /// # Errors
    ///
    /// The payload, or a sub-message on the path of a column, is malformed; or the value of a `string` column is not
    /// UTF-8. Then the slots are meaningless. Sub-messages without columns are not checked.
    ///
    /// # Panics
    ///
    /// If `slots` is shorter than the largest slot requires.
    pub fn run(&self, payload: &[u8], slots: &mut [Slot], present: &mut InputSet) -> Result<(), Malformed> {
        let slots = &mut slots[..self.n_slots];
        let mut found = InputSet::EMPTY;
        self.walk(&self.nodes[0], payload, 0, slots, &mut found)?;
        for nth in 0..self.n_words.min(InputSet::WORDS) {
            let (mask, found) = (self.mask.words()[nth], found.words()[nth]);
            for slot in bits(mask & !found) {
                slots[64 * nth + slot] = Slot::default();
            }
            for slot in bits(self.text.words()[nth] & found) {
                let Slot { a, b } = slots[64 * nth + slot];
                check_utf8(payload, a as usize, b as usize)?;
            }
        }
        *present = *present & !self.mask | found;
        Ok(())
    }

    /// The slots that the walk fills.
    pub fn mask(&self) -> InputSet {
        self.mask
    }

    /// The encoding of the column in a slot; `None` if there is none.
    pub(super) fn column_op(&self, slot: usize) -> Option<Op> {
        self.columns.iter().find(|column| usize::from(column.slot) == slot).map(|column| column.op)
    }

    /// The nodes from `node` to the root, inclusive.
    pub(super) fn path(&self, node: usize) -> impl Iterator<Item = usize> {
        core::iter::successors(Some(node), |&at| (at != 0).then(|| self.nodes[at].parent))
    }

    /// The oneofs that setting `column` decides, and the tag of the member that it sets in each.
    pub(super) fn memberships(&self, column: &Column) -> impl Iterator<Item = (u16, u32)> {
        let own = column.oneof.map(|oneof| (oneof, column.tag));
        let around = self.path(column.node).map(|node| &self.nodes[node]);
        own.into_iter().chain(around.filter_map(|node| Some((node.oneof?, node.tag))))
    }

    /// Whether a field's value at `pos` is not in its closed enum: then the field is unknown.
    #[inline(always)]
    pub(super) fn is_unknown_value(
        &self,
        action: &Action,
        data: &[u8],
        pos: usize,
    ) -> Result<bool, Malformed> {
        let Some(closed) = action.closed else { return Ok(false) };
        let value = wire::varint(data, &mut { pos })? as i32;
        Ok(!self.is_value(closed, value))
    }

    /// Whether a closed enum has this value.
    pub(super) fn is_value(&self, closed: u32, value: i32) -> bool {
        self.closed[closed as usize].binary_search(&value).is_ok()
    }

    /// Walks `data[pos..]`, one occurrence of `node`, and updates `found`, the set of filled slots. Returns the end of
    /// the occurrence: the end of `data`, or the position after the end tag of a delimited message.
    fn walk(
        &self,
        node: &Node,
        data: &[u8],
        mut pos: usize,
        slots: &mut [Slot],
        found: &mut InputSet,
    ) -> Result<usize, Malformed> {
        while pos < data.len() {
            let at = pos;
            let tag = wire::tag(data, &mut pos)?;
            let Some(action) = node.action(tag) else {
                if tag == node.end {
                    return Ok(pos);
                }
                wire::skip(data, &mut pos, tag, at, node.depth)?;
                continue;
            };
            if self.is_unknown_value(action, data, pos)? {
                wire::skip(data, &mut pos, tag, at, node.depth)?;
                continue;
            }
            if action.oneof.is_some() {
                *found &= !action.clears;
            }
            let slot = match action.op {
                Op::Message => {
                    if let Some(slot) = action.opens.filter(|slot| !found.contains(*slot)) {
                        slots[usize::from(slot)] = Slot::default();
                        found.insert(slot);
                    }
                    let child = &self.nodes[usize::from(action.child)];
                    let end = child.extent(data, &mut pos)?;
                    pos = self.walk(child, &data[..end], pos, slots, found)?;
                    continue;
                }
                Op::Unread => {
                    wire::skip(data, &mut pos, tag, at, node.depth)?;
                    continue;
                }
                Op::Text | Op::Bytes => {
                    let end = wire::span(data, &mut pos)?;
                    let slot = Slot { a: pos as u64, b: (end - pos) as u64 };
                    pos = end;
                    slot
                }
                op => Slot { a: read_number(op, data, &mut pos)?, b: 0 },
            };
            slots[usize::from(action.slot)] = slot;
            found.insert(action.slot);
        }
        node.check_end(pos)?;
        Ok(pos)
    }
}

impl Node {
    /// Builds a node from its actions, which are sorted by tag.
    fn new(actions: Vec<Action>, draft: &Draft, tag: u32, oneof: Option<u16>) -> Self {
        let mut one_byte_tags = [NONE; 128];
        // One-byte tags have field numbers up to 15 and one wire type each, so the index fits.
        for (index, action) in actions.iter().enumerate().take_while(|(_, a)| a.tag < 128) {
            one_byte_tags[action.tag as usize] = index as u8;
        }
        let is_delimited = tag & 7 == wire::GROUP;
        let end = if is_delimited { wire::make_tag(tag >> 3, wire::GROUP_END) } else { 0 };
        Self {
            one_byte_tags,
            actions: actions.into(),
            parent: draft.parent,
            tag,
            oneof,
            depth: draft.depth,
            end,
        }
    }

    /// The end of the bytes for an occurrence of the message whose tag is in front of `pos`. Moves `pos` to its first
    /// field.
    #[inline(always)]
    pub(super) fn extent(&self, data: &[u8], pos: &mut usize) -> Result<usize, Malformed> {
        if self.end == 0 { wire::span(data, pos) } else { Ok(data.len()) }
    }

    /// Checks that the bytes may end at `pos`, outside of all fields: not in a delimited message.
    #[inline(always)]
    pub(super) fn check_end(&self, pos: usize) -> Result<(), Malformed> {
        if self.end == 0 { Ok(()) } else { wire::malformed(pos, Reason::Truncated) }
    }

    /// The action at a field with this tag; `None` if it is unknown with this wire type.
    #[inline(always)]
    pub(super) fn action(&self, tag: u32) -> Option<&Action> {
        match self.one_byte_tags.get(tag as usize) {
            Some(&index) => self.actions.get(usize::from(index)),
            None => self.long_tag_action(tag),
        }
    }

    fn long_tag_action(&self, tag: u32) -> Option<&Action> {
        self.actions.binary_search_by_key(&tag, |a| a.tag).ok().map(|index| &self.actions[index])
    }
}

impl Action {
    fn leads_to(&self, node: usize) -> bool {
        self.op == Op::Message && usize::from(self.child) == node
    }
}

impl Op {
    /// Returns the operation that reads a field of this kind.
    pub(super) fn of(kind: FieldKind) -> Self {
        match kind {
            FieldKind::Bool => Self::Bool,
            FieldKind::Int32 | FieldKind::Enum(_) => Self::Int32,
            FieldKind::Uint32 => Self::Uint32,
            FieldKind::Int64 | FieldKind::Uint64 => Self::Int64,
            FieldKind::Sint32 => Self::Sint32,
            FieldKind::Sint64 => Self::Sint64,
            FieldKind::Fixed32 => Self::Fixed32,
            FieldKind::Sfixed32 => Self::Sfixed32,
            FieldKind::Float => Self::Float,
            FieldKind::Fixed64 | FieldKind::Sfixed64 | FieldKind::Double => Self::Fixed64,
            FieldKind::String => Self::Text,
            FieldKind::Bytes => Self::Bytes,
            FieldKind::Message(_) => Self::Message,
        }
    }

    pub(super) fn is_bytes(self) -> bool {
        matches!(self, Self::Text | Self::Bytes)
    }

    pub(super) fn is_scalar(self) -> bool {
        !matches!(self, Self::Message | Self::Unread)
    }
}

/// Numbers the oneofs of all nodes.
#[derive(Default)]
struct Oneofs(Vec<(usize, u32)>);

impl Oneofs {
    /// Returns the number of a oneof of a node, and assigns one if it is new.
    fn id(&mut self, node: usize, oneof: u32) -> u16 {
        let known = self.0.iter().position(|&o| o == (node, oneof));
        let index = known.unwrap_or_else(|| {
            self.0.push((node, oneof));
            self.0.len() - 1
        });
        u16::try_from(index).expect("256 columns of depth 100 lie in fewer oneofs")
    }
}

/// Numbers the closed enums of all nodes.
#[derive(Default)]
struct ClosedEnums {
    ids: BTreeMap<usize, u32>,
    values: Vec<Box<[i32]>>,
}

impl ClosedEnums {
    /// Returns the number of the closed enum at this index of the schema. None if the enum is open.
    fn id(&mut self, at: usize, of: &Enum) -> Option<u32> {
        if let Some(id) = self.ids.get(&at) {
            return Some(*id);
        }
        let id = self.values.len() as u32;
        self.values.push(closed_values(of)?);
        self.ids.insert(at, id);
        Some(id)
    }
}

/// Returns the fields along `path` from a message; all but the last are singular messages.
pub(super) fn fields_along<'s>(
    schema: &'s Schema,
    message: usize,
    path: &[&str],
) -> Result<Vec<&'s Field>, WalkError> {
    if path.is_empty() {
        return Err(WalkError::EmptyPath);
    }
    if path.len() > DEPTH_MAX {
        return Err(WalkError::TooDeep);
    }
    let mut message = &schema.messages[message];
    let mut fields = Vec::with_capacity(path.len());
    for (i, name) in path.iter().enumerate() {
        let field = message.field(name).ok_or_else(|| WalkError::UnknownField {
            message: message.name.clone(),
            field: (*name).to_owned(),
        })?;
        if i + 1 < path.len() {
            let shown = || path[..=i].join(".");
            message = match field.kind {
                _ if field.presence == Presence::Repeated => {
                    return Err(WalkError::Repeated { field: shown() });
                }
                FieldKind::Message(inner) => &schema.messages[inner],
                _ => return Err(WalkError::NotAMessage { field: shown() }),
            };
        }
        fields.push(field);
    }
    Ok(fields)
}

/// The sorted values of an enum, if it is closed.
pub(super) fn closed_values(of: &Enum) -> Option<Box<[i32]>> {
    of.is_closed.then(|| {
        let mut values: Vec<i32> = of.values.iter().map(|(_, number)| *number).collect();
        values.sort_unstable();
        values.into()
    })
}

/// Returns the wire type that a field has outside of packed lists.
pub(super) fn wire_type(field: &Field) -> u32 {
    match field.kind {
        FieldKind::Message(_) if field.is_delimited => wire::GROUP,
        FieldKind::Fixed32 | FieldKind::Sfixed32 | FieldKind::Float => wire::FIXED32,
        FieldKind::Fixed64 | FieldKind::Sfixed64 | FieldKind::Double => wire::FIXED64,
        FieldKind::String | FieldKind::Bytes | FieldKind::Message(_) => wire::LEN,
        _ => wire::VARINT,
    }
}

/// Reads a number of this type at `pos`, and moves `pos` past it. Signed values are sign-extended, and floats
/// widened.
#[inline(always)]
pub(super) fn read_number(op: Op, data: &[u8], pos: &mut usize) -> Result<u64, Malformed> {
    Ok(match op {
        Op::Bool => u64::from(wire::varint(data, pos)? != 0),
        Op::Int32 => wire::varint(data, pos)? as i32 as u64,
        Op::Uint32 => u64::from(wire::varint(data, pos)? as u32),
        Op::Int64 => wire::varint(data, pos)?,
        Op::Sint32 => {
            let raw = wire::varint(data, pos)? as u32;
            ((raw >> 1) as i32 ^ -((raw & 1) as i32)) as u64
        }
        Op::Sint64 => {
            let raw = wire::varint(data, pos)?;
            raw >> 1 ^ (raw & 1).wrapping_neg()
        }
        Op::Fixed32 => u64::from(wire::fixed32(data, pos)?),
        Op::Sfixed32 => wire::fixed32(data, pos)? as i32 as u64,
        Op::Float => f64::from(f32::from_bits(wire::fixed32(data, pos)?)).to_bits(),
        Op::Fixed64 => wire::fixed64(data, pos)?,
        Op::Text | Op::Bytes | Op::Message | Op::Unread => unreachable!("not a number"),
    })
}

/// Checks that these bytes of the payload are UTF-8.
pub(super) fn check_utf8(payload: &[u8], offset: usize, length: usize) -> Result<(), Malformed> {
    let bytes = &payload[offset..offset + length];
    if bytes.is_ascii() || core::str::from_utf8(bytes).is_ok() {
        return Ok(());
    }
    Err(Malformed { offset, reason: Reason::Utf8 })
}

/// The positions of the set bits, lowest first.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(bit)
    })
}

impl fmt::Display for WalkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyPath => f.write_str("a column needs the name of a field"),
            Self::UnknownField { message, field } => write!(f, "`{message}` has no field `{field}`"),
            Self::Repeated { field } => {
                write!(f, "`{field}` is repeated: it has any number of values, and a column has one")
            }
            Self::NotAList { field } => write!(f, "`{field}` is there once, and no list"),
            Self::NotAMessage { field } => write!(f, "`{field}` is not a message and has no fields"),
            Self::IsAMessage { field } => write!(f, "`{field}` is a message; name one of its fields"),
            Self::TooDeep => write!(f, "the path is longer than {DEPTH_MAX} fields"),
            Self::SlotTooLarge { slot } => {
                write!(f, "slot {slot}: a message has at most {SLOTS_MAX} columns")
            }
            Self::SlotTaken { slot } => write!(f, "slot {slot} holds another column"),
            Self::FieldTaken { field, slot } => write!(f, "`{field}` is in slot {slot} already"),
        }
    }
}

impl core::error::Error for WalkError {}
