//! Which mirrors copy packets of a flow.

use std::collections::HashMap;
use std::sync::Arc;

use sluice_flow::mirror::Mirror;
use sluice_flow::{ChainId, Field, Flow, PortNumber};

use crate::service::AgentView;

/// The mirrors that the device has, by the port whose packets they copy.
pub(super) struct MirrorsByPort(HashMap<PortNumber, Vec<Arc<Mirror>>>);

impl MirrorsByPort {
    pub(super) fn new(agent: &AgentView) -> Self {
        let (objects, classes) = (agent.objects(), agent.mirroring());
        let of_operator = objects.mirrors().cloned().map(Arc::new);
        let of_classes = classes.iter().filter_map(|shown| shown.mirror.clone());
        let mut by_port: HashMap<_, Vec<_>> = HashMap::new();
        for mirror in of_operator.chain(of_classes) {
            by_port.entry(mirror.port()).or_default().push(mirror);
        }
        Self(by_port)
    }

    /// The names of those that may copy packets of this flow: there are packets that both take. A flow of a later chain has none, for its
    /// packets are copied before the first one.
    pub(super) fn of<'m>(&'m self, flow: &Flow) -> impl Iterator<Item = &'m str> {
        let matching = flow.matching();
        let (port, mask) = matching.get(Field::InPort);
        let is_of_port = flow.chain() == ChainId(0) && mask == Field::InPort.full_mask();
        let port = u32::try_from(port).ok().filter(|_| is_of_port).map(PortNumber);
        let mirrors = port.and_then(|port| self.0.get(&port)).into_iter().flatten();
        let takes_some =
            move |mirror: &&Arc<Mirror>| mirror.matches.iter().any(|filter| matching.could_concern(filter));
        mirrors.filter(takes_some).map(|mirror| mirror.name.as_str())
    }
}
