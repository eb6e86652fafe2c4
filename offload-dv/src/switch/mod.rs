//! The rules in the eswitch of a device, and all that they need there: tables of chains, matchers, actions and counters.
//!
//! It stays on the thread that opened it, as the handles of [`mlx5`] do.

mod actions;
mod counters;
mod refusal;
mod rule_id;
mod tables;

use std::rc::Rc;

use sluice_flow::Priority;
use sluice_flow::refusal::Refusal;

use crate::mlx5::{self, Context, Domain, DomainKind, Library, Unavailable};
use crate::translate::Rule;

pub use self::counters::Count;
pub use self::rule_id::RuleId;

use self::actions::Actions;
use self::counters::{Counter, Counters};
use self::refusal::refuse;
use self::tables::{MatcherId, Tables};

/// An eswitch, opened. Its rules go with it.
pub struct Switch {
    rules: Vec<Option<Installed>>,
    free: Vec<u32>,
    tables: Tables,
    actions: Actions,
    counters: Counters,
    domain: Domain,
}

struct Installed {
    /// Goes before what it refers to.
    rule: mlx5::Rule,
    counter: Counter,
    matcher: MatcherId,
}

impl Switch {
    /// Opens the eswitch that the device called `name` manages. From then on packets come to our tables first; those that match
    /// nothing there go to the representor of their port.
    pub fn open(library: &Rc<Library>, name: &str) -> Result<Self, Unavailable> {
        let context = Context::open(library, name)?;
        let domain = Domain::create(&context, name, DomainKind::Fdb)?;
        // A rule is replaced by one that matches the same, which acts once the old one is gone.
        domain.allow_duplicate_rules(true);
        let failed = |error: mlx5::CallError| Unavailable::NoSteering { name: name.to_owned(), source: error.source };
        Ok(Self {
            rules: Vec::new(),
            free: Vec::new(),
            tables: Tables::open(&domain).map_err(failed)?,
            actions: Actions::new(library, &domain),
            counters: Counters::new(&context),
            domain,
        })
    }

    /// Installs a rule. Fails if libmlx5 or the device refuses; then nothing has changed.
    pub fn install(&mut self, rule: &Rule, priority: Priority) -> Result<RuleId, Refusal> {
        let counter = self.counters.take()?;
        match self.insert(rule, priority, counter) {
            Ok(installed) => {
                let id = self.keep(installed);
                self.counters.assign(counter, id);
                Ok(id)
            }
            Err(refusal) => {
                self.counters.give_back(counter);
                Err(refusal)
            }
        }
    }

    /// Replaces a rule by one that matches the same and does something else, without a packet that meets neither. It goes on
    /// counting where the old one stood. Fails as [`install`](Self::install) does, and the old rule stays.
    pub fn replace(&mut self, id: RuleId, rule: &Rule, priority: Priority) -> Result<(), Refusal> {
        let Some(counter) = self.installed(id).map(|installed| installed.counter) else { return Err(no_rule(id)) };
        let new = self.insert(rule, priority, counter)?;
        let old = self.rules[id.0 as usize].replace(new);
        self.release(old);
        Ok(())
    }

    /// Removes rules, and returns what each counted: every packet that it took. Their names are free after that.
    pub fn remove(&mut self, ids: &[RuleId]) -> Result<Vec<Count>, Refusal> {
        let mut counters = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(installed) = self.rules.get_mut(id.0 as usize).and_then(Option::take) else {
                return Err(no_rule(*id));
            };
            counters.push(installed.counter);
            self.release(Some(installed));
            self.free.push(id.0);
        }
        self.actions.prune();
        self.tables.prune();
        // From here on no packet is under them.
        self.domain.sync().map_err(refuse)?;
        self.counters.settle(&counters)
    }

    /// Returns how many bulks of counters there are.
    pub fn bulks(&self) -> usize {
        self.counters.bulks()
    }

    /// Returns what rules have counted up to now that have a counter of a bulk.
    pub fn read(&mut self, bulk: usize, visit: &mut dyn FnMut(RuleId, Count)) -> Result<(), Refusal> {
        self.counters.read(bulk, visit)
    }

    /// Waits until the rules that were installed are in the device.
    pub fn sync(&self) -> Result<(), Refusal> {
        self.domain.sync_writes().map_err(refuse)
    }

    fn insert(&mut self, rule: &Rule, priority: Priority, counter: Counter) -> Result<Installed, Refusal> {
        let jump = rule.plan.jump.map(|chain| self.tables.jump(rule.chain, chain)).transpose()?;
        let matcher = self.tables.matcher(rule.chain, priority, &rule.matched.mask)?;
        let actions = self.actions.list(&rule.plan, self.counters.action(counter)?, jump);
        let made = actions.and_then(|actions| self.tables.rule(matcher, &rule.matched.value, actions));
        match made {
            Ok(rule) => Ok(Installed { rule, counter, matcher }),
            Err(refusal) => {
                self.tables.release(matcher);
                Err(refusal)
            }
        }
    }

    fn keep(&mut self, installed: Installed) -> RuleId {
        if let Some(index) = self.free.pop() {
            self.rules[index as usize] = Some(installed);
            return RuleId(index);
        }
        let index = u32::try_from(self.rules.len()).unwrap_or(u32::MAX);
        self.rules.push(Some(installed));
        RuleId(index)
    }

    fn installed(&self, id: RuleId) -> Option<&Installed> {
        self.rules.get(id.0 as usize)?.as_ref()
    }

    fn release(&mut self, installed: Option<Installed>) {
        if let Some(Installed { rule, matcher, .. }) = installed {
            drop(rule);
            self.tables.release(matcher);
        }
    }
}

fn no_rule(id: RuleId) -> Refusal {
    Refusal::Device { reason: format!("there is no rule {}", id.0).into() }
}
