//! Prepares the native functions of a plan, and reads their keys.

use crate::private::{self, ForbiddenAccess};
use crate::seeds::random_bytes;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use weft_core::Value;
use weft_core::native::{NativeDecl, Prepared};
use weft_ir::program::ChainProgram;
use weft_lang::diagnostic::{Code, Diagnostic, code};
use weft_lang::hir;
use weft_native::{ENTROPY_BYTES, KEY_BYTES_MAX, PrepareError, Secrets, is_key_public, prepare};
use zeroize::Zeroizing;

/// Prepares the functions of a program, in order.
///
/// # Errors
/// A diagnostic for each function that cannot be prepared: at its declaration, or else at `place`.
pub(crate) fn of(
    network: &hir::Network,
    program: &ChainProgram,
    place: weft_lang::source::Span,
) -> Result<Vec<Arc<dyn Prepared>>, Vec<Diagnostic>> {
    let (mut ready, mut refused) = (Vec::new(), Vec::new());
    for decl in &program.natives {
        let made = key_of(decl).map_err(PrepareError::Key).and_then(|key| {
            prepare(decl, &Secrets { key: key.as_ref().map(|key| key.as_slice()), entropy: entropy()? })
        });
        match made {
            Ok(function) => ready.push(function),
            Err(why) => refused.push(diagnostic(network, decl, &why, place)),
        }
    }
    if refused.is_empty() { Ok(ready) } else { Err(refused) }
}

/// Warnings for declared functions that could not run on this machine. They are no errors: the machine that checks a
/// network need not run it.
pub(crate) fn warnings(network: &hir::Network) -> Vec<Diagnostic> {
    let declared = network.functions.iter().filter(|function| function.native.info().needs_key);
    let decl = |function: &hir::NativeFunction| NativeDecl {
        name: function.name.clone(),
        native: function.native,
        constants: Vec::new(),
        options: function.options.iter().map(|o| (o.name.to_owned(), o.value.clone())).collect(),
        site: 0,
        cost: function.cost,
    };
    let warning = |function: &hir::NativeFunction| {
        let decl = decl(function);
        let key = key_of(&decl).map_err(PrepareError::Key);
        // The result is thrown away, so any entropy will do.
        let prepared = key.and_then(|key| {
            prepare(
                &decl,
                &Secrets { key: key.as_ref().map(|key| key.as_slice()), entropy: [0; ENTROPY_BYTES] },
            )
        });
        let why = prepared.err()?;
        let message = format!("`{}` could not run on this machine: {why}", function.name);
        Some(Diagnostic::warning(code_of(&why), message).at(function.span, "needs its key where it runs"))
    };
    declared.filter_map(warning).collect()
}

/// The diagnostic of a native function whose key or constant is not valid.
fn diagnostic(
    network: &hir::Network,
    decl: &NativeDecl,
    why: &PrepareError,
    place: weft_lang::source::Span,
) -> Diagnostic {
    let declared = network.functions.iter().find(|function| function.name == decl.name);
    let span = declared.map_or(place, |function| function.span);
    let diagnostic = Diagnostic::error(code_of(why), format!("`{}` cannot be made ready", decl.name))
        .at(span, why.to_string());
    match why {
        PrepareError::Key(_) => {
            diagnostic.with_help("see the guide, \"Keys\", for the forms that a key may have")
        }
        PrepareError::Constant(_) => diagnostic,
    }
}

fn code_of(why: &PrepareError) -> Code {
    match why {
        PrepareError::Key(_) => code::KEY_UNUSABLE,
        PrepareError::Constant(_) => code::FUNCTION_UNPREPARED,
    }
}

/// The bytes of the key that a declaration names. They are overwritten after use.
fn key_of(decl: &NativeDecl) -> Result<Option<Zeroizing<Vec<u8>>>, String> {
    let text = |name: &str| match decl.options.iter().find(|(known, _)| known == name) {
        Some((_, Value::Bytes(text))) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    };
    if let Some(path) = text("key_file") {
        let others = if is_key_public(decl) { ForbiddenAccess::Write } else { ForbiddenAccess::ReadOrWrite };
        let key = read_key(Path::new(&path), others);
        return key.map(Some).map_err(|error| format!("its key `{path}` cannot be read: {error}"));
    }
    let Some(name) = text("key_env") else { return Ok(None) };
    match std::env::var_os(&name) {
        Some(value) => Ok(Some(Zeroizing::new(value.into_encoded_bytes()))),
        None => Err(format!("the environment has no variable `{name}`")),
    }
}

/// Reads a key file, at most one byte above the limit, into memory that is zeroed after use.
fn read_key(path: &Path, others: ForbiddenAccess) -> std::io::Result<Zeroizing<Vec<u8>>> {
    let file = private::open(path, others)?;
    // Reserve all of it now: the old copies of a growing buffer would not be overwritten.
    let mut key = Zeroizing::new(Vec::with_capacity(KEY_BYTES_MAX + 1));
    file.take(KEY_BYTES_MAX as u64 + 1).read_to_end(&mut key)?;
    Ok(key)
}

fn entropy() -> Result<[u8; ENTROPY_BYTES], PrepareError> {
    let none = |_| PrepareError::Key("the system gives no random bytes for its nonces".to_owned());
    random_bytes().map_err(none)
}

#[cfg(test)]
mod tests {
    use crate::compile::{Checked, Compiler, at_fault, check_files};
    use crate::source::Files;
    use std::fs::{OpenOptions, Permissions};
    use std::io::Write as _;
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    use weft_api::{AtFault, Bundle};
    use weft_core::hash::HashKey;
    use weft_ir::interp::Interp;
    use weft_lang::diagnostic::{RenderOptions, render_all};

    fn checked(function: &str, call: &str) -> Checked {
        let text = format!(
            "CREATE LISTENER front ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1';
{function}
CREATE ELEMENT e ON rpc AS
  ON REQUEST SELECT * FROM input WHERE {call} ELSE ABORT INVALID_ARGUMENT 'no';
END;
CREATE CHAIN shop ON front -> cart AS e; END;
"
        );
        let files = [("a.weft".to_owned(), text)].into();
        check_files(
            "a.weft",
            &mut Files::in_bundle(&Bundle { root: "a.weft".to_owned(), files, ..Bundle::default() }),
        )
    }

    fn shown(checked: &Checked) -> String {
        render_all(&checked.diagnostics, &checked.sources, RenderOptions::default())
    }

    const SEAL: &str = "CREATE FUNCTION seal (TEXT) RETURNS BYTES AS NATIVE 'aes_256_gcm_seal' WITH";

    /// A machine without the key must be able to check the network, but not to run it.
    #[test]
    fn missing_key_warns_check_fails_run() {
        let option = "(key_env = 'WEFT_TEST_HAS_NO_SUCH_KEY');";
        let checked = checked(&format!("{SEAL} {option}"), "length(seal(method)) > 0");
        let rendered = shown(&checked);
        assert!(rendered.contains("warning[W0504]: `seal` could not run on this machine"), "{rendered}");
        let network = checked.network.expect("a warning is no error");
        let refused = Compiler::new(Box::new(Interp), 1, HashKey::from_seed(1)).compile(
            &network,
            &checked.sources,
            &[],
        );
        let refused = refused.err().expect("there is no key");
        assert_eq!(refused[0].code.0, "W0504");
        assert!(matches!(at_fault(&refused), AtFault::Environment));
    }

    /// A key in a diagnostic would end up in logs.
    #[test]
    fn wrong_size_key_is_not_printed() {
        let path = std::env::temp_dir().join(format!("weft-short-key-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.as_mut().expect("the folder can be written");
        file.write_all(b"too short to be one").expect("the file takes it");
        let option = format!("(key_file = '{}');", path.display());
        let rendered = shown(&checked(&format!("{SEAL} {option}"), "length(seal(method)) > 0"));
        std::fs::remove_file(&path).expect("it was written");
        assert!(rendered.contains("W0504") && rendered.contains("it needs 32 bytes"), "{rendered}");
        assert!(!rendered.contains("too short to be one"), "{rendered}");
    }

    #[test]
    fn readable_key_file_is_refused() {
        // Every user of the machine would know the key of the network; a public key is for all to know.
        let path = std::env::temp_dir().join(format!("weft-shared-key-{}", std::process::id()));
        let rendered = |mode, text: &str, function: &str, call: &str| {
            std::fs::write(&path, text).expect("the folder can be written");
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("the file is ours");
            let rendered = shown(&checked(&function.replace("KEY", &path.display().to_string()), call));
            std::fs::remove_file(&path).expect("it was written");
            rendered
        };
        let seal = |mode| {
            rendered(
                mode,
                &"0f".repeat(32),
                &format!("{SEAL} (key_file = 'KEY');"),
                "length(seal(method)) > 0",
            )
        };
        assert_eq!(seal(0o600), "");
        for mode in [0o640, 0o604, 0o644] {
            let rendered = seal(mode);
            assert!(
                rendered.contains("W0504") && rendered.contains(&format!("mode {mode:04o}")),
                "{rendered}"
            );
            assert!(rendered.contains(&format!("chmod go= {}", path.display())), "{rendered}");
        }
        let public = include_str!("../../../tests/keys/rs256.pem");
        let verify = "CREATE FUNCTION token (TEXT) RETURNS TEXT? AS NATIVE 'jwt_verify'
            WITH (algorithm = 'RS256', key_file = 'KEY');";
        let verify = |mode| rendered(mode, public, verify, "token(method) IS NOT NULL");
        assert_eq!(verify(0o644), "");
        assert!(verify(0o664).contains("lets other users change it"));
    }

    /// A pattern of a few characters can compile to a machine of megabytes.
    #[test]
    fn oversized_pattern_is_refused() {
        let checked = checked("", r"regex_match(method, '\w{500}\w{500}')");
        let network = checked.network.as_ref().unwrap_or_else(|| panic!("{}", shown(&checked)));
        let refused =
            Compiler::new(Box::new(Interp), 1, HashKey::from_seed(1)).compile(network, &checked.sources, &[]);
        assert_eq!(refused.err().expect("it is too large")[0].code.0, "W0505");
    }
}
