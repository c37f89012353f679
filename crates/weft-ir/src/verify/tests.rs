use super::*;
use crate::generate::{self, Rng};
use crate::text;
use weft_core::types::Type;

/// The chain of the cases, from `generate`. It has the inputs in0 (bool?) to in5 (bytes) and the tables t0 (by_int) to
/// t5 (replicated). Its first variables are var0 (int), var1 (float), var2 (bool) and var3 (MERGE SUM).
fn chain() -> ChainProgram {
    // Some seeds give many more inputs.
    let chains = (0..).map(|seed| generate::chain(&mut Rng::from_seed(seed)));
    let mut chain = chains
        .into_iter()
        .find(|chain| chain.request.inputs.len() < 20)
        .expect("most chains have few inputs");
    chain.request.inputs[5].written = false;
    chain.request.inputs[1].written = true;
    chain
}

fn check_as(handler: Handler, body: &str, rules: &[Rule]) {
    let function = text::parse(&format!("function \"f\" {{\n{body}\n}}")).unwrap();
    let errors = verify(&function, &chain(), handler).err().unwrap_or_default();
    let found: Vec<Rule> = errors.iter().map(|e| e.rule).collect();
    assert_eq!(found, rules, "{body}\n{errors:?}");
}

fn check(body: &str, rules: &[Rule]) {
    check_as(Handler::Request, body, rules);
}

/// Checks one block with a valid end.
fn block(insts: &str, rules: &[Rule]) {
    check(&format!("block0:\n{insts}\n forward"), rules);
}

#[test]
fn entry_exists_without_jumps() {
    check("", &[Rule::Entry]);
    check("block0(v0: int):\n forward", &[Rule::Entry]);
    check("block0: scan 5\n jump block0", &[Rule::Entry]);
}

#[test]
fn mentioned_items_exist() {
    // Back ends index by these numbers without a check.
    check("block0:\n jump block7", &[Rule::Exists]);
    block("v0: row = no_row\n remove t0, v1", &[Rule::Exists]);
    for inst in [
        "v0: int = input in99",
        "v0: int = call_get call9",
        "v0: int = var_get var99",
        "v0: int = count t99",
        "lock t99",
        "emit s9",
        "v0: row = no_row\n v1: int = column t0, v0, c99",
        "v0: bytes = bytes \"\"\n set_answer n9, v0",
        "v0: bytes = bytes \"\"\n set_reply n9, v0",
    ] {
        block(inst, &[Rule::Exists]);
    }
}

#[test]
fn only_message_data_is_derived() {
    // Otherwise a back end would give a field the bytes of the whole message.
    block("v0: bool = derived in0", &[Rule::Derived]);
    block("v0: bytes = derived in12\n v1: int = derived in13", &[]);
}

#[test]
fn value_defined_once_before_use() {
    block("v0: int = now\n v0: int = now", &[Rule::DefinedOnce]);
    block("v1: int = add v0, v0\n v0: int = now", &[Rule::Dominance, Rule::Dominance]);
    block("undefined v0: int\n mark.class v0", &[Rule::Dominance]);
    let one_way = "block0:\n v0: bool = bool true\n branch v0, block1, block2
        block1:\n v1: int = now\n jump block2\n block2:\n mark.class v1\n forward";
    check(one_way, &[Rule::Dominance]);
    let both = "block0:\n v0: bool = bool true\n v1: int = now\n branch v0, block1, block2
        block1:\n jump block2\n block2:\n mark.class v1\n forward";
    check(both, &[]);
}

#[test]
fn operand_types_are_checked() {
    for inst in [
        "v0: float = now",
        "now",
        "v0: int = lock_vars",
        "v0: bool = bool true\n v1: int = len v0",
        "v0: int = int 1\n v1: bool = is_row v0",
        "v0: int = int 1\n v1: float = float 1.0\n v2: int = add v0, v1",
        "v0: bool = bool true\n v1: int = now\n v2: float = rand 1\n v3: int = select v0, v1, v2",
        "v0: float = rand 1\n v1: int = hash v0",
        "v0: int = now\n v1: bool = overflows.udiv.signed v0, v0",
        "v0: int = now\n v1: bool = overflows.sdiv.unsigned v0, v0",
        "v0: row = no_row\n v1: bytes = key v0",
        "v0: bytes = key",
        "v0: bytes = bytes \"\"\n v1: row = find t0, v0",
        "v0: int = int 0\n v1: row = find t2, v0",
        "v0: int = int 0\n emit s1, v0",
        "emit s1",
        "v0: bytes = bytes \"\"\n emit s1, v0 null v0",
        "v0: float = rand 1\n set_input in1, v0",
        "v0: float = rand 1\n set_reply n1, v0",
        "v0: float = rand 1\n call_set call0, v0",
        "v0: float = rand 1\n var_set var0, v0",
        "v0: row = no_row\n v1: int = now\n v2: bool = set_column t0, v0, c1, v1",
    ] {
        block(inst, &[Rule::Type]);
    }
    // A back end that searches bytes would find a pattern that starts within a character.
    check("block0:\n v0: int = now\n branch v0, block1, block1\nblock1:\n forward", &[Rule::Type]);
    check("block0:\n v0: bool = bool true\n abort v0, v0", &[Rule::Type, Rule::Type]);
    check("block0:\n v0: bool = bool true\n redirect v0", &[Rule::Type]);
    check("block0:\n v0: bool = bool true\n fail v0", &[Rule::Type]);
}

#[test]
fn blocks_end_and_are_reachable() {
    check("block0:\n missing", &[Rule::Finished]);
    check("block0:\n forward\nblock1:\n forward", &[Rule::Reachable]);
}

#[test]
fn jump_args_match_params() {
    for args in ["", "(v0, v0)", "(v1)"] {
        let body = format!(
            "block0:\n v0: int = now\n v1: float = rand 1\n jump block1{args}\nblock1(v2: int):\n forward"
        );
        check(&body, &[Rule::Jump]);
    }
}

#[test]
fn back_edges_need_scan_heads() {
    // Any other loop could run for ever.
    let around = |head: &str| {
        format!(
            "block0:\n v0: bool = bool true\n jump block1\nblock1:{head}\n branch v0, block2, block3
            block2:\n jump block1\nblock3:\n forward"
        )
    };
    check(&around(" scan 10"), &[]);
    check(&around(""), &[Rule::BackEdge]);
    check(&around(" scan 99999999"), &[Rule::BackEdge]);
    let into_the_middle = "block0:\n v0: bool = bool true\n branch v0, block1, block2
        block1: scan 5\n jump block2\nblock2: scan 5\n branch v0, block1, block3\nblock3:\n forward";
    check(into_the_middle, &[Rule::BackEdge]);
}

#[test]
fn only_written_inputs_change() {
    // The engine reserves space to rewrite only inputs that are declared written.
    block("v0: bytes = bytes \"\"\n set_input in5, v0", &[Rule::Written]);
    block("clear_input in5", &[Rule::Written]);
    // A field that is never NULL becomes the zero of its type.
    block("clear_input in0\n clear_input in1", &[]);
}

#[test]
fn merged_vars_need_merge_ops() {
    // Each worker has its own part, so a data handler has no value to read.
    block("v0: int = var_get var3", &[Rule::Merge]);
    block("v0: int = now\n var_set var3, v0", &[Rule::Merge]);
    block("v0: int = now\n var_merge var0, v0", &[Rule::Merge]);
    block("v0: int = var_merged var3", &[Rule::Merge]);
    block("var_reset var3", &[Rule::Merge]);
    check_as(Handler::Every, "block0:\n v0: int = var_merged var3\n var_reset var3\n forward", &[]);
}

#[test]
fn every_has_no_tuple() {
    for body in [
        "v0: bool = input_present in0\n forward",
        "v0: bytes = bytes \"\"\n set_answer n0, v0\n forward",
        "v0: bytes = bytes \"\"\n set_reply n3, v0\n forward",
        "v0: int = now\n delay v0\n forward",
        "v0: int = now\n mark.class v0\n forward",
        "v0: bytes = bytes \"\"\n mirror v0\n forward",
        "drop",
        "reply",
        "abort OK",
    ] {
        check_as(Handler::Every, &format!("block0:\n {body}"), &[Rule::NoTuple]);
    }
}

#[test]
fn replicas_and_keys_are_read_only() {
    // Readers of a replicated table take no lock.
    block("v0: bytes = bytes \"a\"\n v1: row = insert t5, v0", &[Rule::ReadOnly]);
    for inst in ["remove t5, v0", "touch t5, v0", "set_column_null t5, v0, c1"] {
        block(&format!("v0: row = no_row\n {inst}"), &[Rule::ReadOnly]);
    }
    block("v0: row = no_row\n touch_read t5, v0", &[]);
    block("v0: row = no_row\n v1: int = now\n v2: bool = set_column t0, v0, c0, v1", &[Rule::ReadOnly]);
    block("v0: row = no_row\n set_column_null t0, v0, c2", &[Rule::ReadOnly]);
}

#[test]
fn stale_rows_and_bytes_refused() {
    // By then, the row may be another one and the bytes may be overwritten.
    let find = "v0: int = int 1\n v1: row = find t0, v0\n";
    block(&format!("{find} remove t0, v1\n v2: int = column t0, v1, c2"), &[Rule::Stale]);
    block(&format!("{find} remove t0, v1\n v2: bool = is_row v1"), &[]);
    block(&format!("{find} v2: row = insert t0, v0\n touch t0, v2\n touch t0, v1"), &[Rule::Stale]);
    block(&format!("{find} touch t1, v1"), &[Rule::Stale]);
    block(&format!("{find} roll_back\n touch t0, v1"), &[Rule::Stale]);
    block("v0: int = now\n v1: bytes = int_to_text.signed v0\n roll_back\n mirror v1", &[Rule::Stale]);
    block("v0: bytes = input in5\n roll_back\n mirror v0", &[]);
    let around = "block0:\n v0: int = int 1\n v1: row = find t0, v0\n jump block1
        block1: scan 3\n touch t0, v1\n remove t0, v1\n v2: bool = bool true\n branch v2, block1, block2
        block2:\n forward";
    check(around, &[Rule::Stale, Rule::Stale]);
}

#[test]
fn chain_limits_are_checked() {
    let with = |change: fn(&mut ChainProgram)| {
        let mut chain = chain();
        change(&mut chain);
        let errors = verify_program(&chain).err().unwrap_or_default();
        errors.into_iter().map(|e| e.rule).filter(|rule| *rule != Rule::Written).collect::<Vec<_>>()
    };
    assert_eq!(with(|_| ()), []);
    let many = |c: &mut ChainProgram| c.response.inputs = vec![c.response.inputs[0].clone(); INPUTS_MAX + 1];
    assert!(with(many).contains(&Rule::Limit));
    assert!(with(|c| c.elements = vec![c.elements[0].clone(); 65]).contains(&Rule::Limit));
    assert!(with(|c| c.call[1].word += 1).contains(&Rule::Layout));
    assert!(with(|c| c.elements[0].handlers.open = None).contains(&Rule::Layout));
    assert!(with(|c| c.vars[7].ty = Type::F64).contains(&Rule::Layout));
    assert!(with(|c| c.tables[4].spec.key.clear()).contains(&Rule::Layout));
}

#[test]
fn errors_name_their_location() {
    let function = text::parse("function \"acl.request\" {\nblock0:\n now ; line 7\n forward\n}").unwrap();
    let errors = verify(&function, &chain(), Handler::Request).unwrap_err();
    assert_eq!(errors[0].to_string(), "acl.request: block0: line 7: the result is not named");
}

#[test]
fn verifier_never_panics() {
    // The verifier stands between a wrong pass and compiled code.
    for seed in 0..300 {
        let mut rng = Rng::from_seed(seed);
        let chain = generate::chain(&mut rng);
        let Some(mut function) = chain.elements[0].handlers.open.clone() else { continue };
        for _ in 0..3 {
            let n = function.blocks.len();
            let block = rng.below(n);
            match rng.below(5) {
                0 => drop(function.types.pop()),
                1 => drop(function.blocks.pop()),
                2 => function.blocks.swap(0, block),
                3 => drop(function.blocks[block].insts.pop()),
                _ => {
                    let end = Jump { block: BlockId(rng.below(n) as u32), args: Vec::new() };
                    function.blocks[block].end = Terminator::Jump(end);
                }
            }
            if function.blocks.is_empty() {
                break;
            }
        }
        let _ = verify(&function, &chain, Handler::Every);
    }
}
