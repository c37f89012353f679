//! Lowers calls of native functions.

use weft_core::abi::Fault;
use weft_core::native::{Effect, NativeDecl};
use weft_core::{Type, Value as Constant};
use weft_ir::ir::{NativeId, Op, Ty, Value};
use weft_lang::check::fold::fold;
use weft_lang::hir::{Expr, NativeRef};

use super::body::Body;
use super::logic::Val;
use super::places;

impl Body<'_, '_> {
    /// Lowers a call of a native function: NULL if an argument is, else its value.
    pub(super) fn native(&mut self, function: NativeRef, site: u32, args: &[Expr], ty: Type) -> Val {
        let decl = self.native_decl(function, site, args);
        let info = decl.native.info();
        let at = places::index_of(&mut self.lowering.program.natives, decl);
        // A list of constants takes all remaining arguments.
        let is_constant =
            |at: usize| info.params.get(at).or(info.params.last()).is_some_and(|param| param.is_constant());
        let given = args.iter().enumerate().filter(|(at, _)| !is_constant(*at)).map(|(_, arg)| arg);
        let vals: Vec<Val> = given.map(|arg| self.expr(arg)).collect();
        let values: Vec<Value> = vals.iter().map(|val| val.value).collect();
        let made = self.b.get(Op::Native(NativeId(at), values), Ty::of(ty));
        let fault = match info.fails {
            Some(_) => {
                let failed = self.b.get(Op::NativeFailed(made), Ty::Bool);
                self.b.raise(failed, Fault::FunctionFailed)
            }
            None => None,
        };
        let result = self.b.result(&vals, made, fault);
        if !info.nullable {
            return result;
        }
        let own = self.b.get(Op::NativeNull(made), Ty::Bool);
        Val { null: self.b.either(result.null, Some(own)), ..result }
    }

    /// Returns the declaration of a function, with what is known statically of its call.
    fn native_decl(&self, function: NativeRef, site: u32, args: &[Expr]) -> NativeDecl {
        let params = &self.scope.instance.params;
        let declared = match function {
            NativeRef::Own(_) => None,
            NativeRef::Declared(at) => Some(at),
            NativeRef::Param(at) => match params[at] {
                Constant::Int(at) => Some(at as usize),
                _ => None,
            },
        };
        let declared = declared.map(|at| &self.lowering.network.functions[at]);
        let native = match (declared, function) {
            (Some(declared), _) => declared.native,
            (None, NativeRef::Own(native)) => native,
            (None, _) => unreachable!("the checker gives a function to each parameter that needs one"),
        };
        let info = native.info();
        let text = |arg: &Expr| match fold(arg, params) {
            Ok(Constant::Bytes(text)) => String::from_utf8_lossy(&text).into_owned(),
            _ => String::new(),
        };
        let is_constant =
            |at: usize| info.params.get(at).or(info.params.last()).is_some_and(|param| param.is_constant());
        let constants = args.iter().enumerate().filter(|(at, _)| is_constant(*at)).map(|(_, arg)| text(arg));
        let options = declared.map(|declared| &declared.options).into_iter().flatten();
        NativeDecl {
            name: declared.map_or(info.name, |declared| &declared.name).to_owned(),
            native,
            constants: constants.collect(),
            options: options.map(|option| (option.name.to_owned(), option.value.clone())).collect(),
            site: if info.effect == Effect::Pure { 0 } else { self.rand_site(site) },
            cost: declared.map_or(info.cost, |declared| declared.cost),
        }
    }
}
