//! The rules in the eswitch of a device, and all that they need there: tables of chains, matchers, actions and counters.
//!
//! It stays on the thread that opened it, as the handles of [`mlx5`] do.

mod actions;
mod counters;
mod kinds;
mod refusal;
mod rule_id;
mod tables;

use std::rc::Rc;

use sluice_flow::Flow;
use sluice_flow::refusal::Refusal;

use crate::mlx5::{self, Context, Domain, DomainKind, Library, Unavailable};
use crate::translate::Instance;

pub use self::counters::Count;
pub use self::rule_id::RuleId;

use self::actions::Actions;
use self::counters::{Counter, Counters};
use self::kinds::{KindId, Kinds};
use self::refusal::{explain, refuse};
use self::tables::Tables;

/// An eswitch, opened. Its rules go with it.
pub struct Switch {
    rules: Vec<Option<Installed>>,
    free: Vec<u32>,
    kinds: Kinds,
    tables: Tables,
    actions: Actions,
    counters: Counters,
    domain: Domain,
}

struct Installed {
    /// Goes before what it refers to.
    rule: mlx5::Rule,
    flow: Flow,
    counter: Counter,
    kind: KindId,
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
            kinds: Kinds::default(),
            tables: Tables::open(&domain).map_err(failed)?,
            actions: Actions::new(library, &domain),
            counters: Counters::new(&context),
            domain,
        })
    }

    /// Installs a rule. Fails if libmlx5 or the device refuses; then nothing has changed.
    pub fn install(&mut self, rule: Instance) -> Result<RuleId, Refusal> {
        let counter = self.counters.take()?;
        match self.insert(rule, counter) {
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
    pub fn replace(&mut self, id: RuleId, rule: Instance) -> Result<(), Refusal> {
        let Some(counter) = self.installed(id).map(|installed| installed.counter) else { return Err(no_rule(id)) };
        let new = self.insert(rule, counter)?;
        if let Some(old) = self.rules[id.0 as usize].replace(new)
            && self.release(old)
        {
            self.prune();
        }
        Ok(())
    }

    /// Returns what a rule is for.
    pub fn flow(&self, id: RuleId) -> Option<&Flow> {
        self.installed(id).map(|installed| &installed.flow)
    }

    /// Removes rules, and returns what each counted: every packet that it took. Their names are free after that.
    pub fn remove(&mut self, ids: &[RuleId]) -> Result<Vec<Count>, Refusal> {
        let mut counters = Vec::with_capacity(ids.len());
        let mut was_last = false;
        for id in ids {
            let Some(installed) = self.rules.get_mut(id.0 as usize).and_then(Option::take) else {
                return Err(no_rule(*id));
            };
            counters.push(installed.counter);
            was_last |= self.release(installed);
            self.free.push(id.0);
        }
        if was_last {
            self.prune();
        }
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

    fn insert(&mut self, rule: Instance, counter: Counter) -> Result<Installed, Refusal> {
        let Instance { flow, template, value } = rule;
        let kind = self.kinds.enter(&template, &mut self.tables, &mut self.actions)?;
        let made = self.counters.action(counter).and_then(|count| self.kinds.rule(kind, &value, count));
        match made {
            Ok(rule) => Ok(Installed { rule, flow, counter, kind }),
            Err(refusal) => {
                if self.kinds.leave(kind, &mut self.tables) {
                    self.prune();
                }
                Err(explain(refusal, &template))
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

    /// Takes a rule out of the tables. Returns whether it was the last of its kind.
    fn release(&mut self, Installed { rule, kind, .. }: Installed) -> bool {
        drop(rule);
        self.kinds.leave(kind, &mut self.tables)
    }

    /// Lets actions and tables go that no rule has any more.
    fn prune(&mut self) {
        self.actions.prune();
        self.tables.prune();
    }
}

fn no_rule(id: RuleId) -> Refusal {
    Refusal::Device { reason: format!("there is no rule {}", id.0).into() }
}
