//! Stand-ins for native functions in generated chains: arbitrary results that depend only on the arguments.

use std::sync::Arc;
use weft_core::hash;
use weft_core::native::{
    Arg, Call, Effect, Ended, NATIVE_BYTES_MAX, Native, NativeCost, NativeDecl, Prepared,
};
use weft_core::types::{Repr, Value};

/// Declares one function for each result type, parameter type and effect.
pub(super) fn declared() -> Vec<NativeDecl> {
    const CHOSEN: [Native; 8] = [
        Native::Gzip,
        Native::Xxh3,
        Native::MatchesAny,
        Native::RegexCapture,
        Native::JsonSet,
        Native::RandomHex,
        Native::JwtVerify,
        Native::Aes256GcmSeal,
    ];
    let decl = |(site, native): (u64, Native)| NativeDecl {
        name: native.name().to_owned(),
        native,
        constants: if native == Native::MatchesAny { vec!["a \"b\"".into(), "c".into()] } else { Vec::new() },
        options: if native == Native::Gzip { vec![("level".into(), Value::Int(3))] } else { Vec::new() },
        site,
        cost: NativeCost { base_ns: 10, ns_per_kib: 100 },
    };
    (0..).zip(CHOSEN).map(decl).collect()
}

/// Stand-ins for the functions of a chain; they do not compute the real functions.
pub(super) fn stand_ins(declared: &[NativeDecl]) -> Vec<Arc<dyn Prepared>> {
    declared.iter().map(|decl| Arc::new(StandIn(decl.clone())) as Arc<dyn Prepared>).collect()
}

#[derive(Debug)]
struct StandIn(NativeDecl);

impl Prepared for StandIn {
    fn call(&self, call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
        let info = self.0.native.info();
        let depends_on = match info.effect {
            Effect::Pure => self.0.native as u64,
            Effect::Clock => call.now.0 as u64,
            Effect::Random | Effect::Nonce => hash::mix(call.rand, self.0.site),
        };
        let drawn = call.args.iter().fold(depends_on, |drawn, arg| hash::mix(drawn, word(*arg)));
        match (drawn % 16, info.result.repr()) {
            (0 | 1, _) if info.nullable => Ended::Null,
            (2 | 3, _) if info.fails.is_some() => Ended::Failed,
            // No function may return this; back ends agree on the result.
            (4, Repr::Bytes) => Ended::Int(drawn as i64),
            (_, Repr::Bool) => Ended::Bool(drawn >> 8 & 1 != 0),
            (_, Repr::Bytes) => {
                out.extend(call.data().iter().rev());
                // Large results now and then, so that passes exhaust the scratch; rarely more than allowed.
                match drawn >> 8 & 0x7ff {
                    0..40 => out.resize(30_000, b'x'),
                    40 => out.resize(NATIVE_BYTES_MAX + 1, b'x'),
                    _ => {}
                }
                Ended::Bytes
            }
            _ => Ended::Int(drawn as i64),
        }
    }
}

/// Maps an argument to a word that is the same on all machines.
fn word(arg: Arg<'_>) -> u64 {
    match arg {
        Arg::Bool(b) => u64::from(b),
        Arg::Int(n) => n as u64,
        // The bits of a computed NaN differ between machines.
        Arg::Float(x) if x.is_nan() => 1,
        Arg::Float(x) => x.to_bits(),
        Arg::Bytes(bytes) => hash::hash_bytes(bytes),
    }
}
