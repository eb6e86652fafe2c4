//! What a changed configuration changes, and what of it a running agent can take over.

use std::fmt;

use super::keys::Config;

/// The key of the levels of the log, which the environment may overrule.
pub(crate) const LEVEL_KEY: &str = "log.level";

/// The keys in which two configurations differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Keys that a running agent can take over.
    pub applicable: Vec<String>,
    /// Keys that take effect at the next start only.
    pub needs_restart: Vec<String>,
}

impl Difference {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.applicable.is_empty() && self.needs_restart.is_empty()
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if !self.applicable.is_empty() {
            parts.push(format!("changed: {}", self.applicable.join(", ")));
        }
        if !self.needs_restart.is_empty() {
            parts.push(format!("needs a restart: {}", self.needs_restart.join(", ")));
        }
        out.write_str(if parts.is_empty() { "nothing changed".to_owned() } else { parts.join("; ") }.as_str())
    }
}

impl Config {
    /// Names the keys in which `new` differs from this one, objects aside.
    pub fn difference(&self, new: &Self) -> Difference {
        self.take_over(new).1
    }

    /// The configuration that an agent which runs under this one has after a reload of `new`: what can change while it
    /// runs is taken from `new`, the rest stays. The difference says which is which, objects aside.
    pub fn take_over(&self, new: &Self) -> (Self, Difference) {
        // Every key is named, so that a new one does not compile before it is decided on.
        let Self {
            backend,
            device,
            run_dir,
            state_dir,
            persist,
            sync_interval,
            lock_dir,
            metrics,
            workers,
            dirty_limit,
            flow_limit,
            rebalance_interval,
            idle_timeout,
            hard_timeout,
            poll_interval,
            retry_interval,
            chain_depth,
            adopt_orphans,
            on_exit,
            control_mode,
            control_group,
            log_rate,
            sources,
            api,
            log,
            // Compared with what is in force, and not with the file before.
            ports: _,
            meters: _,
            mirrors: _,
            mirroring,
            ct_timeouts: _,
        } = new;
        let applicable = [
            ("dirty_limit", self.dirty_limit != *dirty_limit),
            ("flow_limit", self.flow_limit != *flow_limit),
            ("rebalance_interval", self.rebalance_interval != *rebalance_interval),
            ("idle_timeout", self.idle_timeout != *idle_timeout),
            ("hard_timeout", self.hard_timeout != *hard_timeout),
            ("poll_interval", self.poll_interval != *poll_interval),
            ("retry_interval", self.retry_interval != *retry_interval),
            ("on_exit", self.on_exit != *on_exit),
            ("log_rate", self.log_rate != *log_rate),
            ("api.client", self.api.clients != api.clients),
            ("mirror", self.mirroring != *mirroring),
            (LEVEL_KEY, self.log.level != log.level),
        ];
        let needs_restart = [
            ("device", self.device != *device),
            ("run_dir", self.run_dir != *run_dir),
            ("state_dir", self.state_dir() != new.state_dir() && self.state_dir != *state_dir),
            ("persist", self.persist != *persist),
            ("sync_interval", self.sync_interval != *sync_interval),
            ("lock_dir", self.lock_dir != *lock_dir),
            ("metrics", self.metrics != *metrics),
            ("workers", self.workers != *workers),
            ("chain_depth", self.chain_depth != *chain_depth),
            ("adopt_orphans", self.adopt_orphans != *adopt_orphans),
            ("control_mode", self.control_mode != *control_mode),
            ("control_group", self.control_group != *control_group),
            ("api", self.api.remote != api.remote),
            ("source", self.sources != *sources),
            ("log.format", self.log.format != log.format),
        ];
        let needs_restart = [self.backend.difference(backend), changed(&needs_restart)].concat();
        let mut next = new.clone();
        next.backend.clone_from(&self.backend);
        next.device.clone_from(&self.device);
        next.run_dir.clone_from(&self.run_dir);
        next.state_dir.clone_from(&self.state_dir);
        next.persist = self.persist;
        next.sync_interval = self.sync_interval;
        next.lock_dir.clone_from(&self.lock_dir);
        next.metrics = self.metrics;
        next.workers = self.workers;
        next.chain_depth = self.chain_depth;
        next.adopt_orphans = self.adopt_orphans;
        next.control_mode = self.control_mode;
        next.control_group.clone_from(&self.control_group);
        next.sources.clone_from(&self.sources);
        next.api.remote.clone_from(&self.api.remote);
        next.log.format = self.log.format;
        (next, Difference { applicable: changed(&applicable), needs_restart })
    }
}

fn changed(keys: &[(&str, bool)]) -> Vec<String> {
    keys.iter().filter(|(_, differs)| *differs).map(|(key, _)| (*key).to_owned()).collect()
}
