//! The table of operations: the mnemonic of each, and its operands in the order of the text form.

use super::*;

/// Expands a macro with the table of operations.
///
/// A row has the parts of the mnemonic, the fields in the order of the text form, and the variant. A part of a mnemonic
/// is a text, or the name of a field's value ([`Named`]).
macro_rules! op_table {
    ($use:ident) => {
        $use! {
            ["bool"] value => BoolConst(value);
            ["int"] value => IntConst(value);
            ["float"] value => FloatConst(value);
            ["bytes"] value => BytesConst(value);
            ["no_row"] => NoRow;
            ["" op: IntOp] a, b => IntBinary(op, a, b);
            ["overflows." op: IntOp "." signed: Signed] a, b => Overflows(op, signed, a, b);
            ["icmp." op: IntCmp] a, b => IntCompare(op, a, b);
            ["in_range"] a, low, high => InRange(a, low, high);
            ["" op: FloatOp] a, b => FloatBinary(op, a, b);
            ["" op: FloatUnaryOp] a => FloatUnary(op, a);
            ["fcmp." op: FloatCmp] a, b => FloatCompare(op, a, b);
            ["int_to_float." signed: Signed] a => IntToFloat(signed, a);
            ["float_to_int." signed: Signed] a => FloatToInt(signed, a);
            ["float_fits." signed: Signed] a => FloatFits(signed, a);
            ["int_to_text." signed: Signed] a => IntToText(signed, a);
            ["float_to_text"] a => FloatToText(a);
            ["is_int_text." signed: Signed] a => IsIntText(signed, a);
            ["text_to_int." signed: Signed] a => TextToInt(signed, a);
            ["is_float_text"] a => IsFloatText(a);
            ["text_to_float"] a => TextToFloat(a);
            ["float_of_bits"] a => FloatOfBits(a);
            ["bool_to_int"] a => BoolToInt(a);
            ["bool." op: BoolOp] a, b => BoolBinary(op, a, b);
            ["not"] a => Not(a);
            ["select"] by, a, b => Select(by, a, b);
            ["len"] a => Len(a);
            ["byte_at"] a, at => ByteAt(a, at);
            ["word_at"] a, at => WordAt(a, at);
            ["part"] a, at, len => Part(a, at, len);
            ["bcmp." op: BytesCmp] a, b => BytesCompare(op, a, b);
            ["concat"] parts => Concat(parts);
            ["lower"] a => Lower(a);
            ["upper"] a => Upper(a);
            ["slice"] a, from, count => Slice(a, from, count);
            ["scratch_full"] => ScratchFull;
            ["hash"] a => Hash(a);
            ["hash_mix"] a, b => HashMix(a, b);
            ["log2"] a => Log2(a);
            ["in_prefix"] a, prefix => InPrefix(a, prefix);
            ["in_prefixes"] a, prefixes => InPrefixes(a, prefixes);
            ["native"] id, args => Native(id, args);
            ["native_null"] a => NativeNull(a);
            ["native_failed"] a => NativeFailed(a);
            ["input"] id => Input(id);
            ["egress"] => Egress;
            ["input_present"] id => InputPresent(id);
            ["derived"] id => Derived(id);
            ["set_input"] id, a => SetInput(id, a);
            ["clear_input"] id => ClearInput(id);
            ["set_answer"] id, a => SetAnswer(id, a);
            ["set_reply"] id, a => SetReply(id, a);
            ["reshape"] id, args => ChangeHeaders(id, args);
            ["frame_len"] => FrameLen;
            ["frame_get." endian: Endian] at, bytes => FrameGet(at, bytes, endian);
            ["frame_sum"] at, len => FrameSum(at, len);
            ["give"] id, a, b => Give(id, a, b);
            ["now"] => Now;
            ["rand"] site => Rand(site);
            ["call_get"] id => CallGet(id);
            ["call_set" journal: Journal] id, a => CallSet(id, a, journal);
            ["var_get"] id => VarGet(id);
            ["var_set" journal: Journal] id, a => VarSet(id, a, journal);
            ["var_merge" journal: Journal] id, a => VarMerge(id, a, journal);
            ["var_merged"] id => VarMerged(id);
            ["var_reset"] id => VarReset(id);
            ["key"] parts => Key(parts);
            ["find"] table, key => Find(table, key);
            ["match"] table, id, keys => Match(table, id, keys);
            ["is_row"] row => IsRow(row);
            ["insert" journal: Journal] table, key => Insert(table, key, journal);
            ["remove" journal: Journal] table, row => Remove(table, row, journal);
            ["touch"] table, row => Touch(table, row);
            ["touch_read"] table, row => TouchRead(table, row);
            ["column"] table, row, column => Column(table, row, column);
            ["column_is_null"] table, row, column => ColumnIsNull(table, row, column);
            ["set_column" journal: Journal] table, row, column, a => SetColumn(table, row, column, a, journal);
            ["set_column_null" journal: Journal] table, row, column => SetColumnNull(table, row, column, journal);
            ["count_into" journal: Journal] table, row, column, a => CountInto(table, row, column, a, journal);
            ["count"] table => Count(table);
            ["scan_row"] table, cursor => ScanRow(table, cursor);
            ["departed"] table => ExpiredRow(table);
            ["scan_next"] table, row => ScanNext(table, row);
            ["lock"] table, key => Lock(table, key);
            ["lock_vars"] => LockVars;
            ["emit"] sink, cells => Emit(sink, cells);
            ["delay"] by => Delay(by);
            ["mark." mark: Mark] a => Mark(mark, a);
            ["mirror"] to => Mirror(to);
            ["roll_back"] => RollBack;
        }
    };
}
pub(crate) use op_table;

/// A type whose values have names in mnemonics.
pub(crate) trait Named: Copy + PartialEq + 'static {
    /// All values with their names. No name begins with an earlier one.
    const NAMES: &'static [(&'static str, Self)];

    /// The name.
    fn name(self) -> &'static str {
        let named = Self::NAMES.iter().find(|(_, value)| *value == self);
        named.expect("each value has a name").0
    }

    /// Splits a text that begins with a name into the value and the rest.
    fn strip_name(text: &str) -> Option<(Self, &str)> {
        Self::NAMES.iter().find_map(|(name, value)| text.strip_prefix(name).map(|rest| (*value, rest)))
    }
}

/// Names the values of types.
macro_rules! named {
    ($($of:ident: $($name:literal $value:ident),+;)*) => {
        $(impl crate::ir::Named for $of {
            const NAMES: &'static [(&'static str, Self)] = &[$(($name, Self::$value)),+];
        })*
    };
}

pub(crate) use named;

named! {
    IntOp: "add" Add, "sub" Sub, "mul" Mul, "sdiv" SDiv, "udiv" UDiv, "srem" SRem, "urem" URem, "and" And, "or" Or,
        "xor" Xor, "shl" Shl, "shr" Shr, "smin" SMin, "smax" SMax, "umin" UMin, "umax" UMax;
    IntCmp: "eq" Eq, "ne" Ne, "slt" SLt, "sle" SLe, "ult" ULt, "ule" ULe;
    FloatOp: "fadd" Add, "fsub" Sub, "fmul" Mul, "fdiv" Div, "fmin" Min, "fmax" Max;
    FloatUnaryOp: "fneg" Neg, "fabs" Abs, "floor" Floor, "ceil" Ceil, "round" Round, "sqrt" Sqrt;
    FloatCmp: "eq" Eq, "ne" Ne, "lt" Lt, "le" Le;
    BoolOp: "and" And, "or" Or, "xor" Xor;
    BytesCmp: "eq" Eq, "ne" Ne, "lt" Lt, "le" Le, "starts_with" StartsWith, "ends_with" EndsWith,
        "contains" Contains, "like" Like;
    Signed: "signed" Yes, "unsigned" No;
    Endian: "big" Big, "little" Little;
    Journal: ".journal" Yes, "" No;
}

impl Named for Mark {
    const NAMES: &'static [(&'static str, Self)] = &[
        (Self::Class.name(), Self::Class),
        (Self::Remaining.name(), Self::Remaining),
        (Self::Deadline.name(), Self::Deadline),
    ];
}

/// A field of an operation, which may hold values.
trait Field {
    /// Calls `visit` for each value.
    fn each(&self, _visit: &mut impl FnMut(Value)) {}
    /// Calls `visit` for each value, which it may replace.
    fn each_mut(&mut self, _visit: &mut impl FnMut(&mut Value)) {}
}

macro_rules! fields_without_values {
    ($($of:ty),*) => { $(impl Field for $of {})* };
}

fields_without_values!(bool, u8, i64, u64, f64, Vec<u8>, Vec<Vec<u8>>);
fields_without_values!(
    TableId,
    ColumnId,
    InputId,
    CallId,
    VarId,
    SinkId,
    NameId,
    MatchId,
    HeaderChangeId,
    NativeId
);

impl Field for Value {
    fn each(&self, visit: &mut impl FnMut(Self)) {
        visit(*self);
    }

    fn each_mut(&mut self, visit: &mut impl FnMut(&mut Self)) {
        visit(self);
    }
}

impl Field for (Value, Option<Value>) {
    fn each(&self, visit: &mut impl FnMut(Value)) {
        visit(self.0);
        self.1.each(visit);
    }

    fn each_mut(&mut self, visit: &mut impl FnMut(&mut Value)) {
        visit(&mut self.0);
        self.1.each_mut(visit);
    }
}

macro_rules! fields_of_several {
    ($($of:ty),*) => {
        $(impl Field for $of {
            fn each(&self, visit: &mut impl FnMut(Value)) {
                self.iter().for_each(|part| part.each(visit));
            }

            fn each_mut(&mut self, visit: &mut impl FnMut(&mut Value)) {
                self.iter_mut().for_each(|part| part.each_mut(visit));
            }
        })*
    };
}

fields_of_several!(Option<Value>, Vec<Value>, Vec<(Value, Option<Value>)>);

macro_rules! operands {
    ($([$($mnemonic:tt)*] $($field:ident),* => $variant:ident $(($($all:ident),*))?;)*) => {
        impl Op {
            /// Calls `visit` for each operand, in the order of the text form.
            #[allow(unused_variables, reason = "fields of the mnemonic hold no values")]
            fn each_operand(&self, visit: &mut impl FnMut(Value)) {
                match self {
                    $(Self::$variant $(($($all),*))? => { $($field.each(visit);)* })*
                }
            }

            /// Calls `visit` for each operand, which it may replace.
            #[allow(unused_variables, reason = "fields of the mnemonic hold no values")]
            pub(crate) fn each_operand_mut(&mut self, visit: &mut impl FnMut(&mut Value)) {
                match self {
                    $(Self::$variant $(($($all),*))? => { $($field.each_mut(visit);)* })*
                }
            }
        }
    };
}
op_table!(operands);

impl Op {
    /// The operands, in the order of the text form.
    pub fn operands(&self) -> Vec<Value> {
        let mut operands = Vec::new();
        self.each_operand(&mut |value| operands.push(value));
        operands
    }
}
