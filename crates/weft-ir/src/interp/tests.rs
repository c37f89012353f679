use super::*;
use crate::generate::{Observation, Observed, Pass, World};
use crate::program::*;
use crate::text;
use weft_core::marks::Marks;
use weft_core::table::{ColumnSpec, Evict, TableSpec};
use weft_core::types::Value as V;
use weft_core::{Time, Type};

/// A chain for the tests. It has
///
/// - one sink per type: s0 bool, s1 int, s2 float, s3 bytes;
/// - the inputs in0 (int), in1 (text?) and in2 (header);
/// - the tables t0 (U64 -> n I64 = 1, s TEXT(4)? = NULL) and t1 ((I64, TEXT(4)) -> n);
/// - the variables var0 (I64 = 5) and var1 (MERGE SUM from 10);
/// - the call cells call0 (I64) and call1 (TEXT(9)).
fn chain(requests: &[&str]) -> ChainProgram {
    let sink = |ty: Type| SinkDecl {
        owner: "a".into(),
        name: ty.to_string(),
        columns: vec![SinkColumn { name: "it".into(), ty }],
        target: SinkTarget::Stdout,
        format: SinkFormat::Json,
    };
    let input =
        |name: &str, ty, nullable, place| Input { name: name.into(), ty, nullable, place, written: true };
    let column = |name: &str, ty, nullable, default| ColumnSpec { name: name.into(), ty, nullable, default };
    let table = |name: &str, key: Vec<ColumnSpec>, columns| TableDecl {
        owner: "a".into(),
        spec: TableSpec {
            name: name.into(),
            key,
            columns,
            max_rows: 2,
            evict: Evict::Reject,
            ttl: None,
            ttl_on_access: false,
            ttl_on_insert: None,
            shared: true,
            stripes: None,
        },
        realisation: Realisation::Striped,
        rows: Vec::new(),
    };
    let var = |word, start, merge| VarDecl {
        owner: "a".into(),
        name: format!("var{word}"),
        ty: Type::Int(64),
        word,
        start: V::Int(start),
        merge,
    };
    let cell = |word, ty| CallCell { owner: "a".into(), name: format!("call{word}"), ty, word };
    let key = |name, ty| column(name, ty, false, V::Null);
    let element = |request: &&str| Element {
        name: "a".into(),
        handlers: Handlers { request: Some(function(request)), ..Handlers::default() },
        ..Element::default()
    };
    ChainProgram {
        name: "test".into(),
        elements: requests.iter().map(element).collect(),
        request: Direction {
            inputs: vec![
                input("n", Type::Int(64), false, InputLocation::Body(vec!["n".into()])),
                input("s", Type::Text(None), true, InputLocation::Body(vec!["s".into()])),
                input("h", Type::Text(None), true, InputLocation::Header("h".into())),
            ],
        },
        sinks: [Type::Bool, Type::Int(64), Type::F64, Type::Bytes(None)].map(sink).into(),
        tables: vec![
            table(
                "t",
                vec![key("k", Type::Uint(64))],
                vec![
                    column("n", Type::Int(64), false, V::Int(1)),
                    column("s", Type::Text(Some(4)), true, V::Null),
                ],
            ),
            table(
                "pairs",
                vec![key("a", Type::Int(64)), key("b", Type::Text(Some(4)))],
                vec![column("n", Type::Int(64), false, V::Int(0))],
            ),
        ],
        vars: vec![var(0, 5, None), var(1, 10, Some(Merge::Sum))],
        call: vec![cell(0, Type::Int(64)), cell(1, Type::Text(Some(9)))],
        answers: vec![AnswerName { name: "x".into() }],
        replies: vec![ReplyField { path: vec!["f".into()], ty: Type::Int(64) }],
        ..ChainProgram::default()
    }
}

fn function(body: &str) -> Function {
    text::parse(&format!("function \"f\" {{\n{body}\n}}")).unwrap_or_else(|e| panic!("{e}\n{body}"))
}

fn request() -> Pass {
    Pass {
        event: Event::Request,
        opened: 64,
        now: Time(1000),
        rand: 1,
        slots: vec![Slot { a: 7, b: 0 }, Slot { a: 1, b: 3 }, Slot { a: 0, b: 2 }],
        present: (0..3_u16).collect(),
        regions: [b"-bob-".to_vec(), b"hd".to_vec(), Vec::new()],
    }
}

fn run_in(world: &mut World, chain: ChainProgram, event: Event) -> Observation {
    let chain = Arc::new(chain);
    let program = Interp.compile(&chain, event, &world.state).unwrap_or_else(|e| panic!("{e}"));
    world.run(&chain, &*program, &Pass { event, ..request() })
}

fn run(requests: &[&str]) -> Observation {
    let chain = chain(requests);
    run_in(&mut World::new(&chain), chain, Event::Request)
}

/// The value of the last instruction.
fn eval(insts: &str) -> Observed {
    let mut f = function(&format!("block0:\n{insts}\nforward"));
    let last =
        f.blocks[0].insts.last().and_then(|inst| inst.result).expect("the last instruction has a value");
    let sink = match f.ty(last) {
        Ty::Bool => 0,
        Ty::Int => 1,
        Ty::Float => 2,
        Ty::Bytes | Ty::Row => 3,
    };
    f.blocks[0].insts.push(Inst { result: None, op: Op::Emit(SinkId(sink), vec![(last, None)]), line: 0 });
    let mut chain = chain(&["block0:\nforward"]);
    chain.elements[0].handlers.request = Some(f);
    let seen = run_in(&mut World::new(&chain), chain, Event::Request);
    seen.rows.last().expect("a row was emitted").1[0].clone()
}

fn int(n: i64) -> Observed {
    Observed::Word(n as u64)
}

fn bytes(b: &[u8]) -> Observed {
    Observed::Bytes(b.to_vec())
}

#[test]
fn integers_wrap_without_trap() {
    // A back end that traps would stop the process. One that divides differently would disagree.
    let (min, max) = (i64::MIN, i64::MAX);
    for (op, a, b, is) in [
        ("add", max, 1, min),
        ("sub", min, 1, max),
        ("mul", max, 2, -2),
        ("sdiv", min, -1, min),
        ("sdiv", 7, 0, 0),
        ("sdiv", -7, 2, -3),
        ("udiv", -1, 2, max),
        ("udiv", 7, 0, 0),
        ("srem", min, -1, 0),
        ("srem", -7, 2, -1),
        ("srem", 7, 0, 0),
        ("urem", -1, 10, 5),
        ("urem", 7, 0, 0),
        ("and", 6, 3, 2),
        ("or", 6, 3, 7),
        ("xor", 6, 3, 5),
        ("shl", 1, 64, 1),
        ("shl", 1, -1, min),
        ("shr", -1, 63, 1),
        ("shr", -1, 65, max),
        ("smin", -1, 1, -1),
        ("smax", -1, 1, 1),
        ("umin", -1, 1, 1),
        ("umax", -1, 1, -1),
    ] {
        let insts = format!("v0: int = int {a}\nv1: int = int {b}\nv2: int = {op} v0, v1");
        assert_eq!(eval(&insts), int(is), "{op} {a} {b}");
    }
}

#[test]
fn integer_predicates() {
    let (min, max) = (i64::MIN, i64::MAX);
    for (op, a, b, is) in [
        ("overflows.add.signed", max, 1, true),
        ("overflows.add.signed", max, 0, false),
        ("overflows.add.unsigned", max, 1, false),
        ("overflows.add.unsigned", -1, 1, true),
        ("overflows.sub.signed", min, 1, true),
        ("overflows.sub.unsigned", 0, 1, true),
        ("overflows.sub.unsigned", -1, 1, false),
        ("overflows.mul.signed", min, -1, true),
        ("overflows.mul.unsigned", min, 2, true),
        ("overflows.mul.unsigned", max, 2, false),
        ("overflows.sdiv.signed", min, -1, true),
        ("overflows.sdiv.signed", min, 0, false),
        ("icmp.eq", 1, 1, true),
        ("icmp.ne", 1, 1, false),
        ("icmp.slt", -1, 0, true),
        ("icmp.ult", -1, 0, false),
        ("icmp.sle", 0, 0, true),
        ("icmp.ule", 1, -1, true),
    ] {
        let insts = format!("v0: int = int {a}\nv1: int = int {b}\nv2: bool = {op} v0, v1");
        assert_eq!(eval(&insts), int(i64::from(is)), "{op} {a} {b}");
    }
    for (n, is) in [(-3, false), (-2, true), (5, true), (6, false)] {
        assert_eq!(eval(&format!("v0: int = int {n}\nv1: bool = in_range v0, -2, 5")), int(i64::from(is)));
    }
}

#[test]
fn floats_follow_ieee_754() {
    let float = |f: f64| Observed::Word(f.to_bits());
    for (op, a, b, is) in [
        ("fadd", "1e308", "1e308", f64::INFINITY),
        ("fsub", "inf", "inf", f64::NAN),
        ("fmul", "-0.0", "5.0", -0.0),
        ("fdiv", "1.0", "-0.0", f64::NEG_INFINITY),
        ("fdiv", "0.0", "0.0", f64::NAN),
        ("fmin", "0.0", "-0.0", -0.0),
        ("fmax", "-0.0", "0.0", 0.0),
        ("fmin", "1.0", "NaN", f64::NAN),
        ("fmax", "NaN", "1.0", f64::NAN),
        ("fmax", "-inf", "1.0", 1.0),
    ] {
        let insts = format!("v0: float = float {a}\nv1: float = float {b}\nv2: float = {op} v0, v1");
        assert_eq!(eval(&insts), float(is), "{op} {a} {b}");
    }
    for (op, a, is) in [
        ("fneg", "0.0", -0.0),
        ("fabs", "-2.5", 2.5),
        ("floor", "-0.5", -1.0),
        ("ceil", "-0.5", -0.0),
        ("round", "2.5", 2.0),
        ("round", "-3.5", -4.0),
        ("sqrt", "2.25", 1.5),
        ("sqrt", "-1.0", f64::NAN),
    ] {
        assert_eq!(eval(&format!("v0: float = float {a}\nv1: float = {op} v0")), float(is), "{op} {a}");
    }
    for (op, a, b, is) in [
        ("fcmp.eq", "NaN", "NaN", false),
        ("fcmp.ne", "NaN", "NaN", false),
        ("fcmp.ne", "1.0", "2.0", true),
        ("fcmp.eq", "0.0", "-0.0", true),
        ("fcmp.lt", "1.0", "inf", true),
        ("fcmp.le", "1.0", "1.0", true),
        ("fcmp.le", "1.0", "NaN", false),
    ] {
        let insts = format!("v0: float = float {a}\nv1: float = float {b}\nv2: bool = {op} v0, v1");
        assert_eq!(eval(&insts), int(i64::from(is)), "{op} {a} {b}");
    }
}

#[test]
fn conversions_saturate() {
    for (a, signed, fits, is) in [
        ("1.9", "signed", 1, 1),
        ("-1.9", "signed", 1, -1),
        ("-0.9", "unsigned", 1, 0),
        ("-1.0", "unsigned", 0, 0),
        ("NaN", "signed", 0, 0),
        ("9223372036854775808.0", "signed", 0, i64::MAX),
        ("-9223372036854775808.0", "signed", 1, i64::MIN),
        ("9223372036854775808.0", "unsigned", 1, i64::MIN),
        ("18446744073709551616.0", "unsigned", 0, -1),
    ] {
        let with = |op: &str, ty: &str| eval(&format!("v0: float = float {a}\nv1: {ty} = {op}.{signed} v0"));
        assert_eq!(with("float_fits", "bool"), int(fits), "{a} {signed}");
        assert_eq!(with("float_to_int", "int"), int(is), "{a} {signed}");
    }
    for (a, is) in [
        ("0.0", "0.0"),
        ("-0.0", "-0.0"),
        ("1.5", "1.5"),
        ("0.1", "0.1"),
        ("9999999999999998.0", "9999999999999998.0"),
        ("1e16", "10000000000000000"),
        ("1e-7", "0.0000001"),
        ("NaN", "NaN"),
        ("-inf", "-inf"),
    ] {
        assert_eq!(
            eval(&format!("v0: float = float {a}\nv1: bytes = float_to_text v0")),
            bytes(is.as_bytes())
        );
    }
    for (text, signed, is) in [
        ("0", "signed", Some(0)),
        ("-7", "signed", Some(-7)),
        ("-7", "unsigned", None),
        ("007", "unsigned", Some(7)),
        ("", "signed", None),
        ("-", "signed", None),
        ("+7", "signed", None),
        ("7 ", "signed", None),
        ("9223372036854775808", "signed", None),
        ("9223372036854775808", "unsigned", Some(i64::MIN)),
        ("18446744073709551616", "unsigned", None),
    ] {
        let with =
            |op: &str, ty: &str| eval(&format!("v0: bytes = bytes \"{text}\"\nv1: {ty} = {op}.{signed} v0"));
        assert_eq!(with("is_int_text", "bool"), int(i64::from(is.is_some())), "{text} {signed}");
        assert_eq!(with("text_to_int", "int"), int(is.unwrap_or(0)), "{text} {signed}");
    }
    for (text, is) in [
        ("0", Some(0.0)),
        ("-12.50", Some(-12.5)),
        ("1e3", Some(1000.0)),
        ("2.5E-1", Some(0.25)),
        ("1e+2", Some(100.0)),
        ("1e-999", Some(0.0)),
        ("1e999", None),
        ("", None),
        ("-", None),
        (".5", None),
        ("5.", None),
        ("1e", None),
        ("+1", None),
        ("inf", None),
        ("1.2.3", None),
    ] {
        let with = |op: &str, ty: &str| eval(&format!("v0: bytes = bytes \"{text}\"\nv1: {ty} = {op} v0"));
        assert_eq!(with("is_float_text", "bool"), int(i64::from(is.is_some())), "{text}");
        assert_eq!(with("text_to_float", "float"), Observed::Word(is.unwrap_or(0.0f64).to_bits()), "{text}");
    }
    assert_eq!(eval("v0: int = int -1\nv1: bytes = int_to_text.unsigned v0"), bytes(b"18446744073709551615"));
    assert_eq!(
        eval("v0: int = int -1\nv1: float = int_to_float.unsigned v0"),
        Observed::Word(18446744073709551616f64.to_bits())
    );
}

#[test]
fn bytes_operations() {
    let two = |op: &str, a: &str, b: &str| {
        eval(&format!("v0: bytes = bytes \"{a}\"\nv1: bytes = bytes \"{b}\"\nv2: bool = {op} v0, v1"))
    };
    for (op, a, b, is) in [
        ("bcmp.eq", "a", "a", 1),
        ("bcmp.ne", "a", "A", 1),
        ("bcmp.lt", "a", "ab", 1),
        ("bcmp.lt", "\\xff", "a", 0),
        ("bcmp.le", "", "", 1),
        ("bcmp.starts_with", "abc", "ab", 1),
        ("bcmp.starts_with", "a", "ab", 0),
        ("bcmp.ends_with", "abc", "bc", 1),
        ("bcmp.contains", "abc", "", 1),
        ("bcmp.contains", "aab", "ab", 1),
        ("bcmp.contains", "abc", "ca", 0),
        ("in_prefix", "\\x0a\\x01\\x02\\x03", "\\x0a\\x01\\x00\\x00\\x10", 1),
        ("in_prefix", "\\x0a\\x02\\x02\\x03", "\\x0a\\x01\\x00\\x00\\x10", 0),
        ("in_prefix", "\\x0a\\x01\\x02\\x03", "\\x00\\x00\\x00\\x00\\x00", 1),
        ("in_prefix", "\\x0a\\x01\\x02\\x03", "\\x0a\\x01\\x02\\x03!", 0),
        ("in_prefix", "\\x0a\\x01\\x02", "\\x0a\\x01\\x02\\x08", 0),
        ("in_prefix", "\\xe1\\x01\\x02\\x03", "\\xe0\\x00\\x00\\x00\\x03", 1),
        ("in_prefix", "\\xdf\\x01\\x02\\x03", "\\xe0\\x00\\x00\\x00\\x03", 0),
        ("in_prefix", "\\x0a\\x01\\x83\\x03", "\\x0a\\x01\\x80\\x00\\x11", 1),
        ("in_prefix", "", "", 0),
    ] {
        assert_eq!(two(op, a, b), int(is), "{op} {a} {b}");
    }
    for (text, pattern, is) in [
        ("", "", 1),
        ("", "%", 1),
        ("abc", "a%", 1),
        ("abc", "%c", 1),
        ("abc", "%b%", 1),
        ("abc", "a_c", 1),
        ("abc", "a_", 0),
        ("abab", "%ab", 1),
        ("aab", "%ab", 1),
        ("abc", "%%%", 1),
        ("\\xc3\\xbc", "_", 1),
        ("\\xc3\\xbc", "__", 0),
        ("\\xc3\\xbc", "%_", 1),
        ("\\xc3x", "__", 1),
        ("\\xff", "_", 1),
        ("Abc", "abc", 0),
    ] {
        let insts = format!(
            "v0: bytes = bytes \"{text}\"\nv2: bytes = bytes \"{pattern}\"\nv1: bool = bcmp.like v0, v2"
        );
        assert_eq!(eval(&insts), int(is), "{text} {pattern}");
    }
    let (min, max) = (i64::MIN, i64::MAX);
    for (from, count, is) in
        [(0, 2, "ab"), (1, max, "bc"), (-5, 1, "a"), (3, 1, ""), (max, max, ""), (0, -1, ""), (min, min, "")]
    {
        let insts = format!(
            "v0: bytes = bytes \"abc\"\nv1: int = int {from}\nv2: int = int {count}\nv3: bytes = slice v0, v1, v2"
        );
        assert_eq!(eval(&insts), bytes(is.as_bytes()), "{from} {count}");
    }
    let a = "v0: bytes = bytes \"aZ\\xc3\\x9c\"\n";
    assert_eq!(eval(&format!("{a}v1: bytes = lower v0")), bytes(b"az\xc3\x9c"));
    assert_eq!(eval(&format!("{a}v1: bytes = upper v0")), bytes(b"AZ\xc3\x9c"));
    assert_eq!(eval(&format!("{a}v1: int = len v0")), int(4));
    let networks = |address: &str| {
        let text = format!("v0: bytes = bytes \"{address}\"\nv1: bool = in_prefixes v0, ");
        eval(&(text + "\"\\xe0\\x00\\x00\\x00\\x03\", \"\\x7f\\x00\\x00\\x00\\x08\""))
    };
    for (address, is) in [("\\xe1abc", 1), ("\\x7fabc", 1), ("\\x7eabc", 0), ("\\xe1", 0), ("", 0)] {
        assert_eq!(networks(address), int(is), "{address}");
    }
    for (at, is) in [(0, 1), (5, 0xff), (6, 0)] {
        let byte =
            format!("v0: bytes = bytes \"\\x01\\x02\\x03\\x04\\x05\\xff\"\nv1: int = byte_at v0, {at}");
        assert_eq!(eval(&byte), int(is), "byte {at}");
    }
    assert_eq!(eval(&format!("{a}v1: bytes = concat v0, v0")), bytes(b"aZ\xc3\x9caZ\xc3\x9c"));
    assert_eq!(eval("v0: bytes = concat"), bytes(b""));
    assert_eq!(eval(&format!("{a}v1: int = hash v0")), Observed::Word(hash::hash_bytes(b"aZ\xc3\x9c")));
    assert_eq!(eval("v0: int = int 3\nv1: int = hash v0"), Observed::Word(hash::hash_word(3)));
    assert_eq!(eval("v0: int = int 3\nv1: int = hash_mix v0, v0"), Observed::Word(hash::mix(3, 3)));
}

#[test]
fn pass_reads_tuple_and_context() {
    assert_eq!(eval("v0: int = input in0"), int(7));
    assert_eq!(eval("v0: bytes = input in1"), bytes(b"bob"));
    assert_eq!(eval("v0: bytes = input in2"), bytes(b"hd"));
    assert_eq!(eval("clear_input in1\nv0: bytes = input in1"), bytes(b""));
    assert_eq!(eval("clear_input in1\nv0: bool = input_present in1"), int(0));
    assert_eq!(eval("v0: bytes = bytes \"new\"\nset_input in1, v0\nv1: bytes = input in1"), bytes(b"new"));
    assert_eq!(eval("v0: int = now"), int(1000));
    let drawn = hash::unit_float(hash::draw(1, 9));
    assert_eq!(eval("v0: float = rand 9"), Observed::Word(drawn.to_bits()));
    let seen = run(&["block0:
        v0: int = int -4
        v1: int = int 9223372036854775807
        delay v0
        delay v1
        delay v1
        mark.class v0
        v2: bytes = bytes \"copy\"
        mirror v2
        set_answer n0, v2
        set_reply n0, v0
        v3: bool = bool true
        emit s3, v2 null v3
        reply ; line 3"]);
    assert_eq!(
        (seen.delay, seen.marks.class(), seen.mirrors),
        (i64::MAX, Some(-4i32 as u32), vec![(b"copy".to_vec(), 0)])
    );
    assert_eq!(seen.edits, [(EditTarget::Answer(0), bytes(b"copy")), (EditTarget::Reply(0), int(-4))]);
    assert_eq!(seen.rows, [(3, vec![Observed::Null])]);
    assert_eq!((seen.verdict, seen.element, seen.line), (Verdict::Reply, 0, 3));
}

#[test]
fn rows_insert_find_remove() {
    let key = "v0: int = int 9\nv1: row = find t0, v0\nv2: row = insert t0, v0\n";
    assert_eq!(eval("v0: int = int 9\nv1: row = find t0, v0\nv2: bool = is_row v1"), int(0));
    assert_eq!(eval(&format!("{key}v3: row = find t0, v0\nv4: bool = is_row v3")), int(1));
    assert_eq!(eval(&format!("{key}v3: int = column t0, v2, c0")), int(9));
    assert_eq!(eval(&format!("{key}v3: int = column t0, v2, c1")), int(1));
    assert_eq!(eval(&format!("{key}v3: bool = column_is_null t0, v2, c2")), int(1));
    assert_eq!(eval(&format!("{key}v3: bytes = column t0, v2, c2")), bytes(b""));
    let set =
        |text: &str| format!("{key}v3: bytes = bytes \"{text}\"\nv4: bool = set_column t0, v2, c2, v3\n");
    assert_eq!(eval(&set("four")), int(1));
    assert_eq!(eval(&set("fifth")), int(0));
    assert_eq!(eval(&format!("{}v5: bytes = column t0, v2, c2", set("four"))), bytes(b"four"));
    assert_eq!(
        eval(&format!("{}set_column_null t0, v2, c2\nv5: bytes = column t0, v2, c2", set("four"))),
        bytes(b"")
    );
    assert_eq!(eval(&format!("{key}remove t0, v2\nv3: int = count t0")), int(0));
    assert_eq!(eval(&format!("{key}v3: int = count t0")), int(1));
    let full = "v3: int = int 1\nv4: row = insert t0, v3\nv5: int = int 2\nv6: row = insert t0, v5\n";
    assert_eq!(eval(&format!("{key}{full}v7: bool = is_row v6")), int(0));
    let pair = "v0: int = int 1\nv1: bytes = bytes \"ab\"\nv2: bytes = key v0, v1\nv3: row = insert t1, v2\n";
    assert_eq!(eval(&format!("{pair}v4: bytes = column t1, v3, c1")), bytes(b"ab"));
    assert_eq!(eval(&format!("{pair}v4: row = find t1, v2\nv5: bool = is_row v4")), int(1));
    assert_eq!(eval(&format!("{pair}v4: row = find t1, v1\nv5: bool = is_row v4")), int(0));
}

#[test]
fn no_row_reads_null() {
    // A program need not branch around a missing row, so back ends must not access memory for it.
    let none = "v0: row = no_row\nv1: int = int 3\n";
    for (inst, is) in [
        ("v2: int = column t0, v0, c1", 0),
        ("v2: bool = column_is_null t0, v0, c1", 1),
        ("v2: bool = set_column.journal t0, v0, c1, v1", 0),
        ("set_column_null.journal t0, v0, c2\nv2: bool = is_row v0", 0),
        ("remove.journal t0, v0\nv2: int = count t0", 0),
        ("touch t0, v0\ntouch_read t0, v0\nv2: int = count t0", 0),
    ] {
        assert_eq!(eval(&format!("{none}{inst}")), int(is), "{inst}");
    }
}

#[test]
fn scan_visits_each_row_once() {
    let seen = run(&["block0:
        v0: int = int 1
        v1: row = insert t0, v0
        v2: int = int 2
        v3: row = insert t0, v2
        v4: int = int 0
        jump block1(v4)
    block1(v5: int): scan 5
        v6: row = scan_row t0, v5
        v7: bool = is_row v6
        branch v7, block2, block3
    block2:
        v8: int = column t0, v6, c0
        emit s1, v8
        v9: int = scan_next t0, v6
        jump block1(v9)
    block3:
        forward"]);
    assert_eq!(seen.rows, [(1, vec![int(1)]), (1, vec![int(2)])]);
}

#[test]
fn cells_and_vars_hold_values() {
    assert_eq!(eval("v0: int = var_get var0"), int(5));
    assert_eq!(
        eval("lock_vars\nlock_vars\nv0: int = now\nvar_set var0, v0\nv1: int = var_get var0"),
        int(1000)
    );
    assert_eq!(eval("v0: int = now\ncall_set call0, v0\nv1: int = call_get call0"), int(1000));
    let text = "v0: bytes = bytes \"more than nine\"\ncall_set call1, v0\nv1: bytes = call_get call1";
    assert_eq!(eval(text), bytes(b"more than"));
}

#[test]
fn merged_vars_add_up() {
    let mut chain = chain(&["block0:\nv0: int = int 4\nvar_merge var1, v0\nforward"]);
    let every = |body: &str| (Interval(1), function(&format!("block0:\n{body}\nforward")));
    chain.elements[0].handlers.every =
        vec![every("v0: int = var_merged var1\nemit s1, v0"), every("var_reset var1")];
    let mut world = World::new(&chain);
    world.state.merged_parts[1].set_word(1, 100);
    run_in(&mut world, chain.clone(), Event::Request);
    let merged = |world: &mut World| run_in(world, chain.clone(), Event::Every(0, 0)).rows[0].1[0].clone();
    assert_eq!(merged(&mut world), int(114));
    run_in(&mut world, chain.clone(), Event::Every(0, 1));
    assert_eq!(merged(&mut world), int(10));
}

const WRITES: &str = "
    v0: int = int 9
    v1: row = insert.journal t0, v0
    v2: bool = set_column.journal t0, v1, c1, v0
    var_set.journal var0, v0
    var_merge.journal var1, v0
    call_set.journal call0, v0
    v3: bytes = bytes \"new\"
    call_set.journal call1, v3
    set_input in1, v3
    emit s1, v0
    delay v0
    mark.class v0
    mirror v3
    lock t0
    lock t0, v0
    lock_vars";

#[test]
fn verdict_commits_writes() {
    // Only an error undoes the writes of a handler.
    for end in ["forward", "drop", "abort OK", "reply", "redirect v3"] {
        let seen = run(&[&format!("block0:{WRITES}\n{end}")]);
        assert_eq!(seen.tables[0], [vec![int(9), int(9), Observed::Null]], "{end}");
        assert_eq!(seen.vars, [vec![9], vec![19, 0]], "{end}");
        assert_eq!(seen.call, [int(9), bytes(b"new")], "{end}");
        assert_eq!(
            (seen.edits.len(), seen.rows.len(), seen.delay, seen.marks.class()),
            (1, 1, 9, Some(9)),
            "{end}"
        );
    }
}

fn assert_untouched(seen: &Observation) {
    assert_eq!(seen.tables[0], Vec::<Vec<Observed>>::new());
    assert_eq!(seen.vars, [vec![5], vec![10, 0]]);
    assert_eq!(seen.call, [int(0), bytes(b"")]);
    assert_eq!((seen.edits.len(), seen.rows.len(), seen.delay, seen.marks), (0, 0, 0, Marks::NONE));
    assert!(seen.mirrors.is_empty());
}

#[test]
fn failed_element_leaves_no_trace() {
    let fails = format!("block0:{WRITES}\nv4: int = int 3\nfail v4 ; line 8");
    let seen = run(&[&fails, "block0:\ndrop"]);
    assert_untouched(&seen);
    assert_eq!((seen.verdict, seen.element, seen.line), (Verdict::Failed(Fault::TableFull), 0, 8));
    assert_eq!((seen.counters[0].failed, seen.counters[0].seen, seen.counters[1].seen), (1, 1, 0));
    let unknown = run(&["block0:\nv0: int = int 77\nfail v0"]);
    assert_eq!(unknown.verdict, Verdict::Failed(Fault::FunctionFailed));
}

#[test]
fn fail_open_element_is_skipped() {
    let fails = format!("block0:{WRITES}\nv4: int = int 3\nfail v4");
    let next = "block0:\nv0: bytes = input in1\nemit s3, v0\nforward";
    let mut chain = chain(&[&fails, next]);
    chain.elements[0].fail_open = true;
    let seen = run_in(&mut World::new(&chain), chain, Event::Request);
    assert_eq!((seen.verdict, seen.element, seen.line), (Verdict::Forward, 2, 0));
    assert_eq!(seen.rows, [(3, vec![bytes(b"bob")])]);
    assert_eq!((seen.counters[0].failed, seen.counters[1].seen), (1, 1));
}

#[test]
fn rollback_undoes_one_handler() {
    let first = "block0:\nv0: int = int 1\nmark.class v0\nvar_set.journal var0, v0\nforward";
    let second =
        "block0:\nv0: int = int 2\nmark.class v0\nvar_set.journal var0, v0\nroll_back\ndelay v0\nforward";
    let seen = run(&[first, second]);
    assert_eq!((seen.marks.class(), seen.delay, seen.vars[0].clone()), (Some(1), 2, vec![1]));
    assert_untouched(&run(&[&format!("block0:{WRITES}\nroll_back\nforward")]));
}

#[test]
fn scratch_limit_is_exact() {
    // A message must not make a worker keep more memory than the documented limit.
    const HALF: usize = weft_core::limits::SCRATCH_BYTES_MIN / 2;
    let fill = |n: usize| {
        let big = "x".repeat(HALF);
        let rest = "y".repeat(n);
        format!(
            "v0: bytes = bytes \"{big}\"\nv1: bytes = concat v0\nv2: bytes = bytes \"{rest}\"\nv3: bytes = concat v2\n"
        )
    };
    assert_eq!(eval(&format!("{}v4: bool = scratch_full", fill(HALF))), int(0));
    assert_eq!(eval(&format!("{}v4: bool = scratch_full", fill(HALF + 1))), int(1));
    assert_eq!(eval(&format!("{}v4: int = len v3", fill(HALF + 1))), int(0));
    assert_eq!(eval(&format!("{}roll_back\nv4: bool = scratch_full", fill(HALF + 1))), int(0));
}

#[test]
fn last_redirect_wins() {
    let to = |name: &str| format!("block0:\nv0: bytes = bytes \"{name}\"\nredirect v0 ; line 2");
    let (a, b) = (to("a"), to("b"));
    let seen = run(&[&a, &b, "block0:\nforward"]);
    assert_eq!((seen.verdict, seen.element, seen.line, &*seen.text), (Verdict::Redirect, 1, 2, &b"b"[..]));
    assert_eq!((seen.counters[0].diverted, seen.counters[1].diverted), (1, 1));
    let seen = run(&[&a, "block0:\ndrop ; line 5"]);
    assert_eq!((seen.verdict, seen.element, seen.line, &*seen.text), (Verdict::Drop, 1, 5, &b""[..]));
    let seen = run(&["block0:\nv0: int = int 99\nv1: bytes = bytes \"why\"\nabort v0, v1", &a]);
    assert_eq!((seen.verdict, &*seen.text), (Verdict::Abort(Status::Unknown), &b"why"[..]));
    assert_eq!((seen.counters[0].aborted, seen.counters[1].seen), (1, 0));
}

#[test]
fn later_element_sees_edits() {
    let set = "block0:\nv0: int = int 8\nset_input in0, v0\nclear_input in2\nforward";
    let look =
        "block0:\nv0: int = input in0\nemit s1, v0\nv1: bool = input_present in2\nemit s0, v1\nforward";
    let seen = run(&[set, look]);
    assert_eq!(seen.rows, [(1, vec![int(8)]), (0, vec![int(0)])]);
    assert_eq!(seen.edits, [(EditTarget::Input(0), int(8)), (EditTarget::Input(2), Observed::Null)]);
}

#[test]
fn segment_parts_are_in_order() {
    let mut chain = chain(&["block0:\nv0: int = int 1\nemit s1, v0\nforward"; 2]);
    for (n, element) in chain.elements.iter_mut().enumerate() {
        let emit = |m: usize| {
            Some(function(&format!("block0:\nv0: int = int {}\nemit s1, v0\nforward", 10 * m + n)))
        };
        let h = &mut element.handlers;
        (h.open, h.request, h.response, h.close) = (emit(1), emit(2), emit(3), emit(4));
    }
    chain.response = chain.request.clone();
    let order = |event, opened| {
        let mut world = World::new(&chain);
        let shared = Arc::new(chain.clone());
        let program = Interp.compile(&shared, event, &world.state).unwrap();
        let seen = world.run(&shared, &*program, &Pass { event, opened, ..request() });
        let counts: Vec<u64> = seen.counters.iter().map(|c| c.seen).collect();
        let rows = seen.rows.iter().map(|(_, cells)| match cells[0] {
            Observed::Word(n) => n,
            _ => 0,
        });
        (rows.collect::<Vec<u64>>(), counts)
    };
    assert_eq!(order(Event::Open, 2), (vec![10, 11], vec![0, 0]));
    assert_eq!(order(Event::OpenRequest, 2), (vec![10, 20, 11, 21], vec![1, 1]));
    assert_eq!(order(Event::Response, 2), (vec![31, 30], vec![0, 0]));
    assert_eq!(order(Event::Close, 2), (vec![41, 40], vec![0, 0]));
    assert_eq!(order(Event::Close, 1), (vec![40], vec![0, 0]));
}

#[test]
fn sampled_pass_times_elements() {
    use core::sync::atomic::{AtomicU64, Ordering};
    static CLOCK: AtomicU64 = AtomicU64::new(0);
    let chain = Arc::new(chain(&["block0:\nforward", "block0:\ndrop"]));
    let mut world = World::new(&chain);
    let program = Interp.compile(&chain, Event::Request, &world.state).unwrap();
    let pass = request();
    let mut out = abi::Outcome::default();
    let mut cx = Cx {
        slots: &pass.slots,
        trace: Some(|| CLOCK.fetch_add(5, Ordering::Relaxed)),
        ..Cx::new(pass.now, &world.state, &mut world.call, &mut out, &mut world.counters)
    };
    program.run(&mut cx, 2);
    let sampled = |i: usize| (world.counters[i].sampled, world.counters[i].sampled_ns);
    assert_eq!((sampled(0), sampled(1)), ((1, 5), (1, 5)));
}

#[test]
fn malformed_chain_is_refused() {
    let unfinished = Arc::new(chain(&["block0:\nmissing"]));
    let world = World::new(&unfinished);
    let refused = Interp.compile(&unfinished, Event::Request, &world.state).unwrap_err();
    assert_eq!(refused.to_string(), "not well-formed: f: block0: the block has no end");
    let good = Arc::new(chain(&["block0:\nforward"]));
    let refused = Interp.compile(&good, Event::Request, &State::default()).unwrap_err();
    assert_eq!(refused.to_string(), "the state has no table t");
}
