//! Places for connections: so many, and so many of one address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The places there are.
#[derive(Clone)]
pub(super) struct Places {
    taken: Arc<Mutex<Taken>>,
    most: usize,
    most_of_one: Option<usize>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    by: HashMap<IpAddr, usize>,
}

/// Why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    All,
    OfAddress,
}

impl Full {
    pub(super) fn label(self) -> &'static str {
        match self {
            Full::All => "connections",
            Full::OfAddress => "connections_of_address",
        }
    }
}

/// A place, until it is dropped.
pub(super) struct Place {
    of: Places,
    by: IpAddr,
}

impl Places {
    pub(super) fn new(most: usize, most_of_one: Option<usize>) -> Self {
        Self { taken: Arc::default(), most, most_of_one }
    }

    pub(super) fn take(&self, address: IpAddr) -> Result<Place, Full> {
        let by = network(address);
        let mut taken = self.taken();
        if taken.all >= self.most {
            return Err(Full::All);
        }
        let of_one = taken.by.get(&by).copied().unwrap_or(0);
        if self.most_of_one.is_some_and(|most| of_one >= most) {
            return Err(Full::OfAddress);
        }
        taken.all += 1;
        taken.by.insert(by, of_one + 1);
        Ok(Place { of: self.clone(), by })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.of.taken();
        taken.all -= 1;
        match taken.by.get_mut(&self.by) {
            Some(of_one) if *of_one > 1 => *of_one -= 1,
            _ => drop(taken.by.remove(&self.by)),
        }
    }
}

/// Who has one IPv6 address has the other ones of its /64 too.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_address_does_not_take_all() {
        let places = Places::new(3, Some(2));
        let first = places.take(at("10.0.0.1")).ok().unwrap();
        let _second = places.take(at("::ffff:10.0.0.1")).ok().unwrap();
        assert_eq!(places.take(at("10.0.0.1")).err(), Some(Full::OfAddress));
        let _third = places.take(at("10.0.0.2")).ok().unwrap();
        assert_eq!(places.take(at("10.0.0.3")).err(), Some(Full::All));
        drop(first);
        assert!(places.take(at("10.0.0.1")).is_ok());
        assert_eq!(places.taken().by.len(), 2, "nothing is kept of who has gone");
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let places = Places::new(10, Some(1));
        let _first = places.take(at("2001:db8::1")).ok().unwrap();
        assert_eq!(places.take(at("2001:db8::ffff:2")).err(), Some(Full::OfAddress));
        assert!(places.take(at("2001:db8:0:1::1")).is_ok());
    }
}
