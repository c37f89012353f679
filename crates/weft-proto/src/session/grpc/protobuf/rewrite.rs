//! Sets and clears columns in an encoded Protobuf message; copies all other bytes.
//!
//! A rewrite is one pass that copies runs of bytes and omits the edited fields. All occurrences of an edited field are
//! removed, including values that are not in its closed enum: a reader with a later schema would accept them. Two cases
//! need care:
//!
//! - An edited field may be in a sub-message that occurs several times. All its occurrences are removed; the new value
//!   is written once, at the end of the last occurrence, where decoders that do not merge read it too.
//! - Removing a member of a oneof must not restore what that member had cleared. So members before its last occurrence
//!   are removed too.
//!
//! Both need the position of the last occurrence, so a scan comes first if an edit is nested or in a oneof.

use super::walk::{Action, Column, Op, Walk, WalkBuilder, WalkError};
use super::wire::{self, Malformed};
use core::fmt;
use weft_core::inputs::InputSet;
use weft_core::schema::Schema;

/// A new value for a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EditValue<'a> {
    /// Remove the field.
    Clear,
    /// A number, boolean or enum, as [`Walk::run`] returns it in `a`. A `float` is rounded to the nearest value.
    Bits(u64),
    /// A `string` (valid UTF-8) or `bytes`.
    Bytes(&'a [u8]),
}

/// Why a message was not rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditError {
    /// The message is malformed: a fault of the sender. All other errors are faults of the program.
    Malformed(Malformed),
    /// The walk has no column in this slot.
    UnknownSlot {
        /// The slot.
        slot: usize,
    },
    /// Bytes for a number, or a number for bytes.
    WrongKind {
        /// The slot.
        slot: usize,
    },
    /// The number does not fit the field.
    OutOfRange {
        /// The slot.
        slot: usize,
    },
    /// The value of a `string` is not UTF-8.
    NotUtf8 {
        /// The slot.
        slot: usize,
    },
    /// A path for [`encode`] does not name a scalar field.
    Path(WalkError),
}

impl Walk {
    /// Appends `payload` with `edits` to `out`. Edits are pairs of a slot and its new value; a later one wins.
    ///
    /// Setting a field creates the missing enclosing messages, and removes the other members of its oneof (and of the
    /// oneofs of the enclosing messages). Clearing a field keeps the enclosing messages. All other bytes, including
    /// unknown fields, stay the same and in order; only the lengths of the enclosing messages change. On an error `out`
    /// is unchanged.
    ///
    /// # Errors
    ///
    /// The payload, or a sub-message that contains an edit, is malformed; or an edit does not fit its field.
    pub fn rewrite(
        &self,
        payload: &[u8],
        edits: &[(usize, EditValue<'_>)],
        out: &mut Vec<u8>,
    ) -> Result<(), EditError> {
        let mark = out.len();
        let done = self.rewrite_in_rounds(payload, edits, out);
        if done.is_err() {
            out.truncate(mark);
        }
        done
    }

    /// Rewrites in several passes. One pass cannot make contradicting edits, so the later ones are applied to the
    /// result of the earlier ones.
    fn rewrite_in_rounds(
        &self,
        payload: &[u8],
        edits: &[(usize, EditValue<'_>)],
        out: &mut Vec<u8>,
    ) -> Result<(), EditError> {
        let (mut plan, mut n_done) = Plan::new(self, edits)?;
        let mut between = None;
        while n_done < edits.len() {
            let mut next = Vec::new();
            plan.run(between.as_deref().unwrap_or(payload), &mut next)?;
            between = Some(next);
            let (later, n) = Plan::new(self, &edits[n_done..])?;
            plan = later;
            n_done += n;
        }
        Ok(plan.run(between.as_deref().unwrap_or(payload), out)?)
    }
}

/// Appends a message with these `values`, by field path, to `out`. `message` is an index of [`Schema::messages`]. At
/// most [`SLOTS_MAX`](super::SLOTS_MAX) values. On an error `out` is unchanged.
///
/// To build one type often, keep a [`Walk`] and call [`Walk::rewrite`] on an empty payload instead.
///
/// # Errors
///
/// A path does not name a scalar field, or a value does not fit its field.
pub fn encode(
    schema: &Schema,
    message: usize,
    values: &[(&[&str], EditValue<'_>)],
    out: &mut Vec<u8>,
) -> Result<(), EditError> {
    let mut builder = WalkBuilder::new(schema, message);
    for (slot, (path, _)) in values.iter().enumerate() {
        builder.column(path, slot).map_err(EditError::Path)?;
    }
    let edits: Vec<_> = values.iter().enumerate().map(|(slot, (_, value))| (slot, *value)).collect();
    builder.build().rewrite(&[], &edits, out)
}

/// The effect of the edits on each node and oneof of the walk.
struct Plan<'a> {
    walk: &'a Walk,
    edits: Vec<(Column, EditValue<'a>)>,
    /// The edited slots.
    edited: InputSet,
    nodes: Vec<NodePlan>,
    oneofs: Vec<OneofPlan>,
}

#[derive(Clone, Copy, Default)]
struct NodePlan {
    /// An edit is in this message or beneath it.
    is_touched: bool,
    /// It sets a value, so the message must exist.
    is_set: bool,
    /// Every occurrence is removed: it is a wrapper whose column is cleared.
    is_removed: bool,
    /// The offset of the last occurrence that stays.
    last: Option<usize>,
}

#[derive(Clone, Copy, Default)]
struct OneofPlan {
    /// An edit concerns a member.
    is_touched: bool,
    /// The tag of the member that is set; the others are removed.
    kept: Option<u32>,
    /// The offset of the last occurrence of a removed member. It cleared the members before it.
    boundary: usize,
}

impl<'a> Plan<'a> {
    /// The plan for the longest prefix of `edits` without a contradiction, and the length of the prefix.
    fn new(walk: &'a Walk, edits: &[(usize, EditValue<'a>)]) -> Result<(Self, usize), EditError> {
        let mut plan = Plan {
            walk,
            edits: Vec::with_capacity(edits.len()),
            edited: InputSet::EMPTY,
            nodes: vec![NodePlan::default(); walk.nodes.len()],
            oneofs: vec![OneofPlan::default(); walk.n_oneofs],
        };
        plan.nodes[0].last = Some(0);
        for (n_taken, &(slot, value)) in edits.iter().enumerate() {
            let column = walk.columns.iter().find(|c| usize::from(c.slot) == slot);
            let column = column.ok_or(EditError::UnknownSlot { slot })?;
            check_value(walk, column, value)?;
            if plan.contradicts(column, value) {
                return Ok((plan, n_taken));
            }
            plan.add(column, value);
        }
        Ok((plan, edits.len()))
    }

    /// Whether one pass cannot make the edit together with the previous ones: one edits the same field, or both set
    /// members of one oneof. The first edit never contradicts.
    fn contradicts(&self, column: &Column, value: EditValue<'_>) -> bool {
        let is_kept_out =
            |(oneof, tag): (u16, u32)| self.oneofs[usize::from(oneof)].kept.is_some_and(|kept| kept != tag);
        let is_set = value != EditValue::Clear;
        self.edited.contains(column.slot) || is_set && self.walk.memberships(column).any(is_kept_out)
    }

    /// Plans one edit: marks the nodes and oneofs that it changes.
    fn add(&mut self, column: &Column, value: EditValue<'a>) {
        self.edited.insert(column.slot);
        let is_set = value != EditValue::Clear;
        let around = &self.walk.nodes[column.node];
        let (mut edited_in, mut oneof) = (column.node, column.oneof);
        if column.is_wrapped && !is_set {
            // A wrapper without a value would be present, with the default.
            self.nodes[column.node].is_removed = true;
            (edited_in, oneof) = (around.parent, around.oneof);
        }
        for node in self.walk.path(edited_in) {
            self.nodes[node].is_touched = true;
            self.nodes[node].is_set |= is_set;
        }
        if let Some(oneof) = oneof {
            self.oneofs[usize::from(oneof)].is_touched = true;
        }
        if is_set {
            for (oneof, tag) in self.walk.memberships(column) {
                self.oneofs[usize::from(oneof)] =
                    OneofPlan { is_touched: true, kept: Some(tag), boundary: 0 };
            }
        }
        self.edits.push((*column, value));
    }

    /// Writes the payload with the planned edits to `out`.
    fn run(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        let is_nested = self.nodes[1..].iter().any(|n| n.is_touched);
        if is_nested || self.oneofs.iter().any(|o| o.is_touched) {
            self.scan(0, payload, 0)?;
            self.forget_removed_nodes();
        }
        self.emit(0, payload, 0, out)?;
        self.append(0, out);
        Ok(())
    }

    /// Records the last occurrences of nodes and removed oneof members in `data[pos..]`, one occurrence of `node`.
    /// Returns its end.
    fn scan(&mut self, node: usize, data: &[u8], mut pos: usize) -> Result<usize, Malformed> {
        let around = &self.walk.nodes[node];
        while pos < data.len() {
            let at = pos;
            let tag = wire::tag(data, &mut pos)?;
            let Some(action) = around.action(tag) else {
                if tag == around.end {
                    return Ok(pos);
                }
                wire::skip(data, &mut pos, tag, at, around.depth)?;
                continue;
            };
            if self.is_removed(action) {
                // A value that is not in the enum has displaced nothing.
                if let Some(oneof) = action.oneof
                    && !self.walk.is_unknown_value(action, data, pos)?
                {
                    self.oneofs[usize::from(oneof)].boundary = at;
                }
            } else if self.is_touched_message(action) {
                let child = usize::from(action.child);
                self.nodes[child].last = Some(at);
                let end = self.walk.nodes[child].extent(data, &mut pos)?;
                pos = self.scan(child, &data[..end], pos)?;
                continue;
            }
            wire::skip(data, &mut pos, tag, at, around.depth)?;
        }
        around.check_end(pos)?;
        Ok(pos)
    }

    /// Forgets nodes that a removed member of a oneof has cleared, their own or an enclosing message's: they are not in
    /// the result, because all their occurrences are earlier.
    fn forget_removed_nodes(&mut self) {
        for index in 1..self.nodes.len() {
            let oneofs = self.walk.path(index).filter_map(|node| self.walk.nodes[node].oneof);
            let boundary = oneofs.map(|oneof| self.oneofs[usize::from(oneof)].boundary).max();
            self.nodes[index].last =
                self.nodes[index].last.filter(|&last| boundary.is_none_or(|b| last >= b));
        }
    }

    /// Appends one occurrence of `node`, `data[pos..]`, after the edits, without the end tag of a delimited message.
    fn emit(
        &self,
        node: usize,
        data: &[u8],
        mut pos: usize,
        out: &mut Vec<u8>,
    ) -> Result<Emitted, Malformed> {
        let around = &self.walk.nodes[node];
        let mut is_changed = false;
        // The bytes from here to `pos` are not copied yet.
        let mut run = pos;
        while pos < data.len() {
            let at = pos;
            let tag = wire::tag(data, &mut pos)?;
            let action = around.action(tag);
            if action.is_none() && tag == around.end {
                out.extend_from_slice(&data[run..at]);
                return Ok(Emitted { is_changed, fields_end: at, end: pos });
            }
            if action.is_some_and(|a| self.is_removed(a) || self.is_outdated(a, at)) {
                wire::skip(data, &mut pos, tag, at, around.depth)?;
                out.extend_from_slice(&data[run..at]);
                run = pos;
                is_changed = true;
            } else if let Some(action) = action.filter(|a| self.is_touched_message(a)) {
                let child = usize::from(action.child);
                let inner = &self.walk.nodes[child];
                let length_at = pos;
                let end = inner.extent(data, &mut pos)?;
                out.extend_from_slice(&data[run..length_at]);
                run = length_at;
                let mark = out.len();
                let emitted = self.emit(child, &data[..end], pos, out)?;
                let mut is_child_changed = emitted.is_changed;
                if self.nodes[child].last == Some(at) {
                    is_child_changed |= self.append(child, out);
                }
                if is_child_changed {
                    if inner.end == 0 {
                        wire::put_length_before(out, mark);
                    }
                    run = emitted.fields_end;
                    is_changed = true;
                } else {
                    out.truncate(mark);
                }
                pos = emitted.end;
            } else {
                wire::skip(data, &mut pos, tag, at, around.depth)?;
            }
        }
        around.check_end(pos)?;
        out.extend_from_slice(&data[run..]);
        Ok(Emitted { is_changed, fields_end: pos, end: pos })
    }

    /// Appends the set fields of `node`, and its missing messages. Returns false if there are none.
    fn append(&self, node: usize, out: &mut Vec<u8>) -> bool {
        let mark = out.len();
        for (column, value) in self.edits.iter().filter(|(c, _)| c.node == node) {
            put_field(column, *value, out);
        }
        for (child, plan) in self.nodes.iter().enumerate().skip(node + 1) {
            let inner = &self.walk.nodes[child];
            if inner.parent == node && plan.is_set && plan.last.is_none() {
                wire::put_varint(out, inner.tag.into());
                let mark = out.len();
                self.append(child, out);
                match inner.end {
                    0 => wire::put_length_before(out, mark),
                    end => wire::put_varint(out, end.into()),
                }
            }
        }
        out.len() > mark
    }

    /// Whether all occurrences of this field are removed: it is edited, or another member of its oneof is set.
    fn is_removed(&self, action: &Action) -> bool {
        let is_edited = match action.op {
            Op::Message => self.nodes[usize::from(action.child)].is_removed,
            op => op.is_scalar() && self.edited.contains(action.slot),
        };
        let kept = action.oneof.and_then(|oneof| self.oneofs[usize::from(oneof)].kept);
        is_edited || kept.is_some_and(|tag| tag != action.tag)
    }

    /// Whether a removed member of the oneof, after `at`, cleared the occurrence at `at`.
    fn is_outdated(&self, action: &Action, at: usize) -> bool {
        action.oneof.is_some_and(|oneof| at < self.oneofs[usize::from(oneof)].boundary)
    }

    fn is_touched_message(&self, action: &Action) -> bool {
        action.op == Op::Message && self.nodes[usize::from(action.child)].is_touched
    }
}

/// How one occurrence of a message was written.
struct Emitted {
    /// Its content changed.
    is_changed: bool,
    /// Where its fields end in the payload.
    fields_end: usize,
    /// Where it ends in the payload.
    end: usize,
}

/// Checks that a value has the kind of the column and is within its range.
fn check_value(walk: &Walk, column: &Column, value: EditValue<'_>) -> Result<(), EditError> {
    let slot = usize::from(column.slot);
    let fits = match (column.op, value) {
        (_, EditValue::Clear) => true,
        (Op::Text, EditValue::Bytes(text)) => {
            return core::str::from_utf8(text).map(drop).map_err(|_| EditError::NotUtf8 { slot });
        }
        (Op::Bytes, EditValue::Bytes(_)) => true,
        (Op::Text | Op::Bytes, EditValue::Bits(_)) | (_, EditValue::Bytes(_)) => {
            return Err(EditError::WrongKind { slot });
        }
        (Op::Bool, EditValue::Bits(bits)) => bits <= 1,
        // A reader would see another number as an unknown field, and the field as absent.
        (Op::Int32, EditValue::Bits(bits)) if column.closed.is_some() => {
            let value = i32::try_from(bits as i64);
            value.is_ok_and(|value| column.closed.is_some_and(|closed| walk.is_value(closed, value)))
        }
        (Op::Int32 | Op::Sint32 | Op::Sfixed32, EditValue::Bits(bits)) => i32::try_from(bits as i64).is_ok(),
        (Op::Uint32 | Op::Fixed32, EditValue::Bits(bits)) => u32::try_from(bits).is_ok(),
        (_, EditValue::Bits(_)) => true,
    };
    if fits { Ok(()) } else { Err(EditError::OutOfRange { slot }) }
}

/// Appends the field with a value that [`check_value`] has accepted.
fn put_field(column: &Column, value: EditValue<'_>, out: &mut Vec<u8>) {
    let tag = u64::from(column.tag);
    match value {
        EditValue::Clear => {}
        EditValue::Bytes(bytes) => {
            wire::put_varint(out, tag);
            wire::put_varint(out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
        EditValue::Bits(bits) => {
            wire::put_varint(out, tag);
            put_number(column.op, bits, out);
        }
    }
}

/// Appends a number in the encoding of the column's type.
fn put_number(op: Op, bits: u64, out: &mut Vec<u8>) {
    match op {
        Op::Sint32 | Op::Sint64 => wire::put_varint(out, bits << 1 ^ (bits as i64 >> 63) as u64),
        Op::Fixed32 | Op::Sfixed32 => out.extend_from_slice(&(bits as u32).to_le_bytes()),
        Op::Float => out.extend_from_slice(&(f64::from_bits(bits) as f32).to_le_bytes()),
        Op::Fixed64 => out.extend_from_slice(&bits.to_le_bytes()),
        _ => wire::put_varint(out, bits),
    }
}

impl From<Malformed> for EditError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::UnknownSlot { slot } => write!(f, "slot {slot} holds no column of this message"),
            Self::WrongKind { slot } => {
                write!(f, "the value for slot {slot} has another type than the field")
            }
            Self::OutOfRange { slot } => write!(f, "the value for slot {slot} does not fit the field"),
            Self::NotUtf8 { slot } => write!(f, "the text for slot {slot} is not UTF-8"),
            Self::Path(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for EditError {}
