//! Clients over TCP that have not shown yet who they are.
//!
//! Anybody may connect and say nothing. So that this keeps nobody out who has a certificate, such clients have places of their own, and where
//! there is none left, a new one takes that of another: of the network that has the most of them, the one that has waited for the longest. Who
//! needs some milliseconds for a handshake is through by then.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use tokio::task::{AbortHandle, JoinSet};

/// At a time.
const MOST: usize = 256;

/// Those that are under way. They end with this.
#[derive(Default)]
pub(super) struct Handshakes {
    tasks: JoinSet<()>,
    /// In the order in which they came, and some that are through.
    clients: VecDeque<Client>,
}

struct Client {
    address: IpAddr,
    task: AbortHandle,
}

impl Handshakes {
    /// Begins one with a client at an address. Returns the address of the client that has to go for it, if there is no place.
    pub(super) fn begin(
        &mut self,
        address: IpAddr,
        handshake: impl Future<Output = ()> + Send + 'static,
    ) -> Option<IpAddr> {
        while self.tasks.try_join_next().is_some() {}
        self.clients.retain(|client| !client.task.is_finished());
        let crowded_out = if self.clients.len() < MOST { None } else { self.crowd_out() };
        let task = self.tasks.spawn(handshake);
        self.clients.push_back(Client { address, task });
        crowded_out
    }

    fn crowd_out(&mut self) -> Option<IpAddr> {
        let mut counts = HashMap::new();
        for client in &self.clients {
            *counts.entry(network(client.address)).or_insert(0) += 1;
        }
        let most = counts.values().copied().max()?;
        let first = self.clients.iter().position(|client| counts[&network(client.address)] == most)?;
        let Client { address, task } = self.clients.remove(first)?;
        task.abort();
        Some(address)
    }
}

/// The network that one who has an address has all addresses of, as a rule: with IPv6 these are the last 64 bits.
fn network(address: IpAddr) -> IpAddr {
    const INTERFACE: u128 = u128::MAX >> 64;
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !INTERFACE).into()),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Those that are under way, of which none ends, from addresses.
    fn waiting(addresses: impl IntoIterator<Item = String>) -> Handshakes {
        let mut handshakes = Handshakes::default();
        for from in addresses {
            assert_eq!(handshakes.begin(address(&from), std::future::pending()), None);
        }
        handshakes
    }

    #[tokio::test]
    async fn who_has_most_of_the_places_gives_up_the_oldest_and_nobody_else_any() {
        let of_one = (2..MOST).map(|_| "192.0.2.7".to_owned());
        let mut handshakes = waiting(["192.0.2.1".to_owned(), "192.0.2.2".to_owned()].into_iter().chain(of_one));
        let oldest = handshakes.clients[2].task.clone();
        assert_eq!(handshakes.begin(address("192.0.2.3"), async {}), Some(address("192.0.2.7")));
        // That one, and the new one.
        for _ in 0..2 {
            assert!(handshakes.tasks.join_next().await.is_some());
        }
        assert!(oldest.is_finished());
        assert_eq!(handshakes.begin(address("192.0.2.7"), async {}), None, "there is a place");
    }

    #[tokio::test]
    async fn addresses_of_one_network_of_ipv6_are_one_client_and_mapped_ones_are_those_of_ipv4() {
        let of_one = (1..MOST).map(|host| format!("2001:db8:1:1::{host:x}"));
        let mut handshakes = waiting(["::ffff:192.0.2.1".to_owned()].into_iter().chain(of_one));
        let crowded_out = handshakes.begin(address("2001:db8:1:2::1"), std::future::pending());
        assert_eq!(crowded_out, Some(address("2001:db8:1:1::1")));
        assert_eq!(network(address("::ffff:192.0.2.1")), address("192.0.2.1"));
    }
}
