//! Domains, tables, matchers and rules of direct rules.

use std::cell::Cell;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::rc::Rc;

use super::action::{Action, Counts};
use super::context::Context;
use super::error::{CallError, Unavailable};
use super::library::{Functions, MatcherLayout, RawAction, RawDomain, RawMatcher, RawRule, RawTable};
use super::match_parameter::MatchParameter;

pub(super) const SYNC_SOFTWARE: u32 = 1 << 0;
pub(super) const SYNC_HARDWARE: u32 = 1 << 1;

/// Which packets the tables of a domain see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DomainKind {
    /// Those that the function receives.
    NicReceive = 0,
    /// Those that the function sends.
    NicTransmit = 1,
    /// Those of the eswitch.
    Fdb = 2,
}

/// All tables of a kind, and what they share.
#[derive(Clone)]
pub struct Domain(Rc<DomainHandle>);

struct DomainHandle {
    raw: NonNull<RawDomain>,
    context: Context,
}

/// A table. That of level 0 is the kernel's; each other one is in memory that software writes.
#[derive(Clone)]
pub struct Table(Rc<TableHandle>);

struct TableHandle {
    raw: NonNull<RawTable>,
    domain: Domain,
}

/// Rules of a table that look at the same bits.
#[derive(Clone)]
pub struct Matcher(Rc<MatcherHandle>);

struct MatcherHandle {
    raw: NonNull<RawMatcher>,
    table: Table,
}

/// What rules have in common that differ in values and counters only: their matcher, and what they do besides counting.
#[derive(Clone)]
pub struct Shape(Rc<ShapeOf>);

struct ShapeOf {
    matcher: Matcher,
    actions: Box<[Action]>,
    /// What libmlx5 is given: the action that counts, and behind it all others.
    list: Box<[Cell<*mut RawAction>]>,
}

/// A rule in the device, until it is dropped.
pub struct Rule {
    raw: NonNull<RawRule>,
    /// The device refers to what is in it.
    shape: Shape,
}

/// Actions of a rule at most: libmlx5 takes 20 entries for a rule, of which each holds one at least.
const MOST_ACTIONS: usize = 20;

impl Domain {
    /// Makes a domain of the device called `name`. Fails if the device, its firmware or the privileges of this process do not let
    /// software write tables.
    pub fn create(context: &Context, name: &str, kind: DomainKind) -> Result<Self, Unavailable> {
        let none = |source| Unavailable::NoSteering { name: name.to_owned(), source };
        // SAFETY: the device is open, and the domain keeps it so.
        let raw = unsafe { (context.functions().mlx5dv_dr_domain_create)(context.raw(), kind as u32) };
        let raw = NonNull::new(raw).ok_or_else(|| none(io::Error::last_os_error()))?;
        let domain = Self(Rc::new(DomainHandle { raw, context: context.clone() }));
        // Where something is missing, libmlx5 makes a domain that has the kernel's table only.
        domain.table(1).map_err(|error| none(error.source))?;
        Ok(domain)
    }

    /// Lets a rule be made that matches as another one does. The first of them acts until it is destroyed, so that a rule can be
    /// replaced without a gap.
    pub fn allow_duplicate_rules(&self, allow: bool) {
        // SAFETY: the domain exists.
        unsafe { (self.functions().mlx5dv_dr_domain_allow_duplicate_rules)(self.raw(), allow) };
    }

    /// Waits until all that was written is in the device, and no packet is under a rule that was destroyed before.
    pub fn sync(&self) -> Result<(), CallError> {
        self.sync_with(SYNC_SOFTWARE | SYNC_HARDWARE)
    }

    /// Waits until all that was written is in the device.
    pub fn sync_writes(&self) -> Result<(), CallError> {
        self.sync_with(SYNC_SOFTWARE)
    }

    /// Makes a table. Rules may only lead to tables of higher levels.
    pub fn table(&self, level: u32) -> Result<Table, CallError> {
        // SAFETY: the table keeps the domain.
        let raw = unsafe { (self.functions().mlx5dv_dr_table_create)(self.raw(), level) };
        let raw = NonNull::new(raw).ok_or_else(|| CallError::last("mlx5dv_dr_table_create"))?;
        Ok(Table(Rc::new(TableHandle { raw, domain: self.clone() })))
    }

    fn sync_with(&self, flags: u32) -> Result<(), CallError> {
        // SAFETY: the domain exists.
        CallError::check("mlx5dv_dr_domain_sync", unsafe {
            (self.functions().mlx5dv_dr_domain_sync)(self.raw(), flags)
        })
    }

    pub(super) fn raw(&self) -> *mut RawDomain {
        self.0.raw.as_ptr()
    }

    pub(super) fn functions(&self) -> &Functions {
        self.0.context.functions()
    }
}

impl Table {
    /// Makes a matcher for rules that look at the bits of `mask`. Of several matchers of a table, the one with the lower priority
    /// number is asked first.
    pub fn matcher(&self, priority: u16, mask: &MatchParameter) -> Result<Matcher, CallError> {
        let create = self.functions().mlx5dv_dr_matcher_create;
        // SAFETY: the matcher keeps the table; libmlx5 copies the mask.
        let raw = unsafe { create(self.raw(), priority, mask.criteria(), mask.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(|| CallError::last("mlx5dv_dr_matcher_create"))?;
        Ok(Matcher(Rc::new(MatcherHandle { raw, table: self.clone() })))
    }

    pub(super) fn raw(&self) -> *mut RawTable {
        self.0.raw.as_ptr()
    }

    pub(super) fn functions(&self) -> &Functions {
        self.0.domain.functions()
    }
}

impl Matcher {
    /// Lays the table of its rules out once and for all, with room for so many rules, as a power of two. Fails once it has rules.
    pub fn set_layout(&self, log_rules: u32) -> Result<(), CallError> {
        let mut raw = MatcherLayout { flags: MatcherLayout::NUM_RULE, log_num_of_rules_hint: log_rules };
        // SAFETY: the matcher exists; libmlx5 copies the layout.
        CallError::check("mlx5dv_dr_matcher_set_layout", unsafe {
            (self.functions().mlx5dv_dr_matcher_set_layout)(self.0.raw.as_ptr(), &raw mut raw)
        })
    }

    /// Makes a rule for packets whose bits under the mask are those of `value`.
    pub fn rule(&self, value: &MatchParameter, actions: Box<[Action]>) -> Result<Rule, CallError> {
        self.shape(actions).rule(value, None)
    }

    /// Makes what rules of this matcher have in common that do the same.
    pub fn shape(&self, actions: Box<[Action]>) -> Shape {
        let list = std::iter::once(null_mut()).chain(actions.iter().map(Action::raw)).map(Cell::new).collect();
        Shape(Rc::new(ShapeOf { matcher: self.clone(), actions, list }))
    }

    fn functions(&self) -> &Functions {
        self.0.table.functions()
    }
}

impl Shape {
    /// Makes a rule for packets whose bits under the mask are those of `value`. It counts them first, if it is given a counter by its
    /// place in a bulk.
    pub fn rule(&self, value: &MatchParameter, count: Option<(&Counts, usize)>) -> Result<Rule, CallError> {
        const CALL: &str = "mlx5dv_dr_rule_create";
        let ShapeOf { matcher, list, .. } = &*self.0;
        let list = match count {
            None => &list[1..],
            Some((counts, index)) => {
                list[0].set(counts.action(index)?.as_ptr());
                list
            }
        };
        if list.len() > MOST_ACTIONS {
            return Err(CallError { call: CALL, source: io::ErrorKind::ArgumentListTooLong.into(), answer: None });
        }
        let create = matcher.functions().mlx5dv_dr_rule_create;
        let actions = list.as_ptr().cast_mut().cast();
        // SAFETY: the rule keeps matcher and actions, and the bulk does not destroy the counter's before the rule's end; libmlx5 copies
        // value and list.
        let raw = unsafe { create(matcher.0.raw.as_ptr(), value.as_ptr(), list.len(), actions) };
        let raw = NonNull::new(raw).ok_or_else(|| CallError::last(CALL))?;
        Ok(Rule { raw, shape: self.clone() })
    }

    /// Returns that of rules of the same matcher with other actions.
    pub fn with(&self, actions: Box<[Action]>) -> Self {
        self.0.matcher.shape(actions)
    }

    /// Returns the same for another matcher.
    pub fn under(&self, matcher: &Matcher) -> Self {
        matcher.shape(self.0.actions.clone())
    }

    fn functions(&self) -> &Functions {
        self.0.matcher.functions()
    }
}

impl Rule {
    /// Returns its shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns whether it has the matcher of rules of this shape.
    pub fn is_beside(&self, shape: &Shape) -> bool {
        Rc::ptr_eq(&self.shape.0.matcher.0, &shape.0.matcher.0)
    }
}

macro_rules! destroyed_when_dropped {
    ($($handle:ident $function:ident ($this:ident) $functions:expr;)*) => {
        $(impl Drop for $handle {
            fn drop(&mut self) {
                let $this = &*self;
                // SAFETY: all that was made of it kept it, and is gone.
                let code = unsafe { ($functions.$function)(self.raw.as_ptr()) };
                if let Err(error) = CallError::check(stringify!($function), code) {
                    tracing::error!("{error}");
                }
            }
        })*
    };
}
destroyed_when_dropped! {
    DomainHandle mlx5dv_dr_domain_destroy (this) this.context.functions();
    TableHandle mlx5dv_dr_table_destroy (this) this.domain.functions();
    MatcherHandle mlx5dv_dr_matcher_destroy (this) this.table.functions();
    Rule mlx5dv_dr_rule_destroy (this) this.shape.functions();
}
