//! Names that the glossary has replaced are not defined anew.
//!
//! The rule looks at definitions alone: files, modules, types, functions, constants and enum variants. Uses, local
//! variables and fields need no rule, because they follow the definitions. A common word counts only for the kinds of
//! definition, and in the crates, that the glossary means. `cargo xtask prose --list` shows all old names.

use super::Finding;
use super::rust::Source;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    File,
    Module,
    Type,
    Function,
    Constant,
    Variant,
}

/// The kinds of definition for which an old name counts.
const MODULE: &[Kind] = &[Kind::File, Kind::Module];
const TYPE: &[Kind] = &[Kind::Type];
/// For words without another meaning.
const TYPE_OR_VARIANT: &[Kind] = &[Kind::Type, Kind::Variant];
const FUNCTION: &[Kind] = &[Kind::Function, Kind::Constant];
const LOWER_CASE: &[Kind] = &[Kind::File, Kind::Module, Kind::Function, Kind::Constant];

/// An old name, the kinds of definition for which it counts, and the standard name.
struct Rename {
    old: &'static str,
    kinds: &'static [Kind],
    standard: &'static str,
    /// Part of the path of the files in which the old name counts; empty for all files.
    within: &'static str,
    /// For functions: one of these types has to be among the parameters; empty for all functions.
    takes: &'static [&'static str],
}

const fn rename(old: &'static str, kinds: &'static [Kind], standard: &'static str) -> Rename {
    Rename { old, kinds, standard, within: "", takes: &[] }
}

const fn rename_within(
    old: &'static str,
    kinds: &'static [Kind],
    standard: &'static str,
    within: &'static str,
) -> Rename {
    Rename { old, kinds, standard, within, takes: &[] }
}

const BY_MEANING: &str = "a name by what it is";

/// "Rename what is there" of the glossary.
const RENAMES: &[Rename] = &[
    rename("usual_way", LOWER_CASE, "fast_path"),
    rename("usual", MODULE, "specialize"),
    rename("alike", MODULE, "path_merge"),
    rename("ahead", MODULE, "prefetch"),
    rename("Notes", TYPE_OR_VARIANT, "PrefetchSlots"),
    rename("Noted", TYPE_OR_VARIANT, "PrefetchSlots"),
    rename("near", MODULE, "jit_layout"),
    rename("sure", MODULE, "null_narrowing"),
    rename("amend", LOWER_CASE, "row_updates"),
    rename("wanting", LOWER_CASE, "missing_args"),
    rename("together", MODULE, "parallel_backend"),
    rename_within("way", MODULE, "dispatch", "/queue"),
    rename("intact", MODULE, "l4_checksum"),
    rename_within("held", MODULE, "starvation", "/queue"),
    rename_within("blame", MODULE, "diagnostic_origin", "/queue"),
    rename("turns", MODULE, "round_robin"),
    rename("exits", MODULE, "egress"),
    rename_within("session", MODULE, "http2_events", "crates/weft-engine/src/"),
    rename("call_link", LOWER_CASE, "call_queue"),
    rename("Line", TYPE, "WorkerQueue, or source line, cache line, FIFO or queue"),
    rename("Lines", TYPE, "source lines, cache lines, FIFOs or queues"),
    rename("Live", TYPE, "ActivePlan, ActiveChain or StatusTable"),
    rename("pays_ahead", FUNCTION, "prefetch_pays"),
    rename("goes_through", FUNCTION, "has_fast_path"),
    rename("target_lately", FUNCTION, "cached_target"),
    Rename { takes: &["Swap", "Version", "Change", "Update", "Plan"], ..rename("take", FUNCTION, "apply") },
    rename("take_up", FUNCTION, "apply"),
    rename("take_on", FUNCTION, "apply"),
    rename("take_over", FUNCTION, "apply"),
    rename("Place", TYPE, "Location or Slot"),
    rename("Found", TYPE, "LookupResult"),
    rename("Seen", TYPE, "Visited"),
    rename("said_of", FUNCTION, "report, notify or log"),
    rename("told_of", FUNCTION, "report, notify or log"),
    rename_within("said", FUNCTION, "report, notify or log", "queue"),
    rename_within("told", FUNCTION, "report, notify or log", "queue"),
    rename("Fate", TYPE_OR_VARIANT, "Disposition"),
    rename("Lost", TYPE, "DropReason"),
    rename_within("Exit", TYPE, "Egress", "crates/weft-engine/"),
    rename_within("Left", TYPE, "PassResult", "crates/weft-engine/"),
    rename("Gone", TYPE, "Progress"),
    rename("Halt", TYPE, "StopReason"),
    rename("Passing", TYPE_OR_VARIANT, "ExecBatch"),
    rename("Through", TYPE_OR_VARIANT, "FusedBatch"),
    rename("Looking", TYPE_OR_VARIANT, "PrefetchBatch"),
    rename("Unparsed", TYPE_OR_VARIANT, "RawBatch"),
    rename("Leave", TYPE, "OutcomeSink"),
    rename("Leaving", TYPE_OR_VARIANT, "OutcomeSink"),
    rename("Begins", TYPE_OR_VARIANT, "LinkFraming"),
    rename("Followed", TYPE_OR_VARIANT, "FragmentInfo"),
    rename("Firsts", TYPE_OR_VARIANT, "FirstFragments"),
    rename("Said", TYPE, "a name for user metadata"),
    rename("Undone", TYPE, "EditError"),
    rename("Unfit", TYPE, "StateMismatch"),
    rename_within("Bare", TYPE, "DetachedChecksum", "crates/weft-engine/"),
    rename("Wrap", TYPE, "FilteredCall"),
    rename_within("Facts", TYPE, "PassInputs", "crates/weft-engine/"),
    rename("Weighed", TYPE_OR_VARIANT, "LengthProbe"),
    rename("Ears", TYPE_OR_VARIANT, "Channels"),
    rename("Bell", TYPE_OR_VARIANT, "Doorbell"),
    rename("Errand", TYPE_OR_VARIANT, "Task"),
    rename("Departs", TYPE_OR_VARIANT, "RowRemoval"),
    rename("departed", FUNCTION, "expired_row"),
    rename("Dice", TYPE_OR_VARIANT, "Rng"),
    rename("dice", MODULE, "rng"),
    rename("tell_departed", FUNCTION, "run_expired"),
    rename("keep_house", FUNCTION, "housekeeping"),
    rename("spell", FUNCTION, "materialize"),
    rename("Way", TYPE, BY_MEANING),
    rename("Edit", TYPE, "FieldWrite"),
    rename_within("Store", TYPE, "FieldWrite", "crates/weft-ir/"),
    rename("Reshape", TYPE, "HeaderChange"),
];

impl Rename {
    fn applies(&self, path: &str, definition: &Definition<'_>) -> bool {
        self.kinds.contains(&definition.kind)
            && (self.old == definition.name
                || definition.kind == Kind::Constant && self.old.to_uppercase() == definition.name)
            && path.contains(self.within)
            && (self.takes.is_empty() || words(definition.params).any(|word| self.takes.contains(&word)))
    }
}

/// The old names that a file defines.
pub(crate) fn old_names(source: &Source<'_>) -> Vec<Finding> {
    let found = definitions(source).into_iter().flat_map(|definition| {
        let renames = RENAMES.iter().filter(|rename| rename.applies(source.path, &definition));
        let finding = |rename: &Rename| {
            let text = format!("`{}` is an old name: the glossary has {}", rename.old, rename.standard);
            Finding::new(source.path, definition.line, text)
        };
        renames.map(finding).collect::<Vec<_>>()
    });
    found.collect()
}

/// A definition in a file; the file itself is one.
#[derive(Debug)]
struct Definition<'a> {
    kind: Kind,
    name: &'a str,
    /// Counted from 1; 0 means the whole file.
    line: usize,
    /// The parameters of a function.
    params: &'a str,
}

fn definitions<'a>(source: &'a Source<'_>) -> Vec<Definition<'a>> {
    let code = source.code.as_str();
    let mut found = Vec::new();
    if let Some(name) = file_name(source.path) {
        found.push(Definition { kind: Kind::File, name, line: 0, params: "" });
    }
    let mut line = 1;
    let mut counted = 0;
    let mut before = "";
    for (at, word) in word_positions(code) {
        line += code[counted..at].matches('\n').count();
        counted = at;
        let follows_before = code[..at].trim_end().ends_with(before);
        let kind = match before {
            _ if !follows_before => None,
            "mod" => Some(Kind::Module),
            "struct" | "enum" | "union" | "trait" | "type" => Some(Kind::Type),
            "fn" => Some(Kind::Function),
            "const" | "static" if word != "fn" => Some(Kind::Constant),
            _ => None,
        };
        let after = &code[at + word.len()..];
        if let Some(kind) = kind {
            let params = if kind == Kind::Function { params(after) } else { "" };
            found.push(Definition { kind, name: word, line, params });
        }
        if kind == Some(Kind::Type) && before == "enum" {
            let variants = variants(after).into_iter();
            found.extend(variants.map(|(offset, name)| {
                let line = line + after[..offset].matches('\n').count();
                Definition { kind: Kind::Variant, name, line, params: "" }
            }));
        }
        before = word;
    }
    found
}

/// `a` of `.../a.rs` and `.../a/mod.rs`.
fn file_name(path: &str) -> Option<&str> {
    let stem = path.strip_suffix(".rs")?;
    stem.strip_suffix("/mod").unwrap_or(stem).rsplit('/').next()
}

/// The text from a function's name to its body.
fn params(after: &str) -> &str {
    after.split(['{', ';']).next().unwrap_or_default()
}

/// The variants of an enum, from the text that follows its name: the offset and name of each.
fn variants(after: &str) -> Vec<(usize, &str)> {
    let mut variants = Vec::new();
    let (mut depth, mut is_next) = (0, false);
    for (at, c) in after.char_indices() {
        match c {
            ';' if depth == 0 => break,
            '{' | '(' | '[' => {
                depth += 1;
                is_next |= depth == 1 && c == '{';
            }
            '}' | ')' | ']' => {
                depth -= 1;
                if depth == 0 && c == '}' {
                    break;
                }
            }
            ',' if depth == 1 => is_next = true,
            c if depth == 1 && is_next && is_word_char(c) => {
                let end = after[at..].find(|c| !is_word_char(c)).map_or(after.len(), |len| at + len);
                variants.push((at, &after[at..end]));
                is_next = false;
            }
            _ => {}
        }
    }
    variants
}

fn word_positions(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let start = code.as_ptr() as usize;
    words(code).map(move |word| (word.as_ptr() as usize - start, word))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_word_char(c)).filter(|word| !word.is_empty())
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n_found(path: &str, text: &str) -> usize {
        old_names(&Source::new(path, text)).len()
    }

    #[test]
    fn old_name_definition_is_found() {
        // If this failed, a private word could return in some kind of definition.
        let text = "pub mod ahead;\npub(crate) struct Passing<'a>(&'a u8);\n\
                    fn tell_departed() {}\nenum A { Errand(u8) }\n";
        let found = old_names(&Source::new("crates/a/src/b.rs", text));
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert!(found[1].text.contains("ExecBatch"), "{found:?}");
        assert_eq!(n_found("crates/a/src/ahead.rs", ""), 1);
        assert_eq!(n_found("crates/a/src/turns/mod.rs", ""), 1);
        assert_eq!(n_found("a.rs", "const SPELL: u8 = 0;"), 1);
    }

    #[test]
    fn use_of_a_word_is_no_definition() {
        // If this failed, false findings would get the rule switched off.
        let text = "use b::Passing; // mod ahead\nlet ahead = \"fn spell()\"; x.take_up();\n\
                    enum E { Left, Place(u8) }\n";
        assert_eq!(n_found("a.rs", text), 0);
        assert_eq!(n_found("a.rs", "fn near() {}\nfn held() {}\nstruct S { place: Place }\n"), 0);
        assert_eq!(n_found("a.rs", "const fn f(way: Way) {}\n"), 0);
        assert_eq!(n_found("crates/weft-proto/src/session/mod.rs", ""), 0);
    }

    #[test]
    fn take_counts_for_versions_only() {
        // If this failed, the standard library's word for moving a value out would be forbidden.
        assert_eq!(n_found("a.rs", "fn take(&mut self) -> Option<u8> { None }"), 0);
        assert_eq!(n_found("a.rs", "fn take(&mut self, swap: &Swap) {}"), 1);
    }

    #[test]
    fn variant_differs_from_its_field() {
        // If this failed, the type of a field would count as a variant.
        let text = " { A(Fate), #[doc = \"\"] B { c: Fate }, C = 1, }";
        let names: Vec<&str> = variants(text).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["A", "B", "C"]);
    }
}
