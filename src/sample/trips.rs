//! Drawing trips, and sharing the revenue out among them.

use super::SampleError;
use super::buckets::{self, AIRPORTS, Bucket};
use super::random::Random;

/// Trips of one month in one file, which come to an exact revenue.
#[derive(Debug)]
pub(super) struct Group {
    buckets: Vec<Bucket>,
    cents: i64,
    destinations: Vec<u16>,
}

/// A trip before its fare is known. Distances are in hundredths of a mile, amounts in cents.
#[derive(Debug, Clone, Copy)]
struct Trip {
    /// Where in its hour it is written: trips are written about when they end.
    order: u32,
    row: PricedTrip,
    /// What its fare would be by the meter.
    metered: u32,
    tip_percent: u32,
    refund: bool,
}

/// A trip as it is written. Distances are in hundredths of a mile, amounts in cents.
#[derive(Debug, Clone, Copy)]
pub(super) struct PricedTrip {
    pub(super) vendor: i32,
    /// In seconds since 1970, by the clock on the wall.
    pub(super) pickup: i64,
    pub(super) dropoff: i64,
    /// None where the meter did not say; then rate code, flag, congestion surcharge and airport fee are null too.
    pub(super) passengers: Option<i64>,
    pub(super) distance: u32,
    pub(super) rate_code: i64,
    pub(super) stored: bool,
    pub(super) from: i32,
    pub(super) to: i32,
    pub(super) payment: i64,
    pub(super) fare: i64,
    pub(super) extra: i64,
    pub(super) mta_tax: i64,
    pub(super) tip: i64,
    pub(super) tolls: i64,
    pub(super) improvement: i64,
    pub(super) congestion: i64,
    pub(super) airport_fee: i64,
}

impl PricedTrip {
    /// The sum of all amounts.
    pub(super) fn total(&self) -> i64 {
        self.fixed() + self.fare + self.tip
    }

    /// What does not depend on the way.
    fn fixed(&self) -> i64 {
        self.extra + self.mta_tax + self.tolls + self.improvement + self.congestion + self.airport_fee
    }
}

impl Trip {
    /// Its part in what fares and tips come to.
    fn weight(&self) -> u64 {
        u64::from(self.metered) * u64::from(100 + self.tip_percent)
    }
}

/// Shares an amount out by weight, one after the other, so that in the end exactly all of it is given.
struct Shares {
    cents: u64,
    weight: u64,
    weight_so_far: u64,
    given: u64,
    left: u64,
}

impl Group {
    /// Trips in these buckets, sorted by hour, that come to `cents`.
    pub(super) fn new(buckets: Vec<Bucket>, cents: i64) -> Self {
        Self { buckets, cents, destinations: buckets::zone_table() }
    }

    /// The buckets.
    #[cfg(test)]
    pub(super) fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// How many trips.
    pub(super) fn trips(&self) -> u64 {
        self.buckets.iter().map(|b| u64::from(b.trips)).sum()
    }

    /// Hands over every trip, hour by hour.
    ///
    /// The trips are drawn twice, first to add up what they weigh, rather than kept.
    pub(super) fn for_each_trip(
        &self,
        take: &mut dyn FnMut(&PricedTrip) -> Result<(), SampleError>,
    ) -> Result<(), SampleError> {
        let mut shares = self.shares()?;
        let mut trips = Vec::new();
        for hour in self.hours() {
            self.draw_hour(hour, &mut trips);
            trips.sort_by_key(|t| t.order);
            for trip in &mut trips {
                if !trip.refund {
                    shares.pay(trip);
                }
                take(&trip.row)?;
            }
        }
        Ok(())
    }

    /// What fares and tips of the trips that are no refunds come to, and their weight.
    fn shares(&self) -> Result<Shares, SampleError> {
        let mut trips = Vec::new();
        let (mut fixed, mut weight, mut left) = (0, 0, 0);
        for hour in self.hours() {
            self.draw_hour(hour, &mut trips);
            for trip in &trips {
                fixed += trip.row.total();
                if !trip.refund {
                    weight += trip.weight();
                    left += 1;
                }
            }
        }
        match u64::try_from(self.cents - fixed) {
            Ok(cents) => Ok(Shares { cents, weight, weight_so_far: 0, given: 0, left }),
            Err(_) => Err(SampleError::Budget { cents: self.cents, fixed, trips: self.trips() }),
        }
    }

    fn hours(&self) -> impl Iterator<Item = &[Bucket]> {
        self.buckets.chunk_by(|a, b| a.place.hour == b.place.hour)
    }

    /// Draws the trips of an hour, the same at each call.
    fn draw_hour(&self, hour: &[Bucket], trips: &mut Vec<Trip>) {
        trips.clear();
        let Some(first) = hour.first() else { return };
        let mut random = Random::stream([first.place.hour as u64, self.cents as u64]);
        for bucket in hour {
            trips.extend((0..bucket.trips).map(|_| self.draw(bucket, &mut random)));
        }
        // A group of so few has no refund, which its few fares could hardly carry.
        if self.buckets.len() > FEW {
            trips.iter_mut().filter(|_| random.permille(12)).for_each(refund);
        }
    }

    fn draw(&self, bucket: &Bucket, random: &mut Random) -> Trip {
        let from = bucket.place.zone;
        let to = self.destinations[random.below(self.destinations.len() as u32) as usize];
        let airport = AIRPORTS.contains(&from) || AIRPORTS.contains(&to) && random.permille(500);
        let distance = if airport { 780 + random.below(1_250) } else { way_in_town(random) };
        let seconds = 120 + distance * (130 + random.below(140)) / 100;
        let start = random.below(3600);
        let unknown = random.permille(48);
        let flat = airport && !unknown && (from == AIRPORTS[0] || to == AIRPORTS[0]) && random.permille(600);
        let payment = if unknown { 0 } else { random.pick(&[(1, 83), (2, 17)], 1) };
        let pickup = bucket.place.hour * 3600 + i64::from(start);
        let row = PricedTrip {
            vendor: random.pick(&[(2, 757), (1, 243)], 2),
            pickup,
            dropoff: pickup + i64::from(seconds),
            passengers: (!unknown).then(|| random.pick(PASSENGERS, 1)),
            distance,
            rate_code: if flat { 2 } else { random.pick(&[(1, 985), (5, 7), (99, 8)], 1) },
            stored: random.permille(4),
            from: i32::from(from),
            to: i32::from(to),
            payment,
            fare: 0,
            extra: extra(bucket.place.hour),
            mta_tax: 50,
            tip: 0,
            tolls: if airport && random.permille(480) { 694 } else { 0 },
            improvement: 100,
            congestion: if !unknown && random.permille(910) { 250 } else { 0 },
            airport_fee: if !unknown && AIRPORTS.contains(&from) { 175 } else { 0 },
        };
        Trip {
            order: start + random.below(seconds),
            row,
            metered: if flat { 7_000 } else { 300 + distance / 20 * 70 + seconds / 240 * 70 },
            tip_percent: if payment == 1 { random.pick(TIPS, 20) } else { 0 },
            refund: false,
        }
    }
}

impl Shares {
    /// Gives a trip its fare and tip. By the meter fares are whole dimes, so a trip without a tip leaves the odd cents to
    /// the next one; the last takes all.
    fn pay(&mut self, trip: &mut Trip) {
        self.weight_so_far += trip.weight();
        self.left -= 1;
        let due = u128::from(self.cents) * u128::from(self.weight_so_far) / u128::from(self.weight);
        let owed = due as u64 - self.given;
        let dimes = |cents: u64| cents / 10 * 10;
        let (fare, tip) = if trip.tip_percent > 0 {
            let fare = dimes(owed * 100 / u64::from(100 + trip.tip_percent));
            (fare, owed - fare)
        } else if self.left == 0 {
            (owed, 0)
        } else {
            (dimes(owed), 0)
        };
        self.given += fare + tip;
        (trip.row.fare, trip.row.tip) = (fare as i64, tip as i64);
    }
}

/// At most so many buckets are few.
const FEW: usize = 20;

/// How often so many passengers ride.
const PASSENGERS: &[(i64, u32)] = &[(1, 778), (2, 143), (3, 32), (4, 18), (5, 10), (6, 7), (0, 12)];

/// How often so many percent are given as a tip by card.
const TIPS: &[(u32, u32)] = &[(0, 5), (10, 5), (15, 10), (20, 40), (22, 15), (25, 15), (30, 10)];

/// Most ways in town are short.
fn way_in_town(random: &mut Random) -> u32 {
    40 + random.below(220) + random.below(24) * random.below(24)
}

/// The surcharge of an hour: in the evening of working days, and at night.
fn extra(hour: i64) -> i64 {
    match hour.rem_euclid(24) {
        16..20 => 250,
        20.. | 0..6 => 100,
        _ => 0,
    }
}

/// Turns a trip into the refund of one: every amount is given back.
fn refund(trip: &mut Trip) {
    let row = &mut trip.row;
    trip.refund = true;
    if row.passengers.is_some() {
        row.payment = if row.pickup % 3 == 0 { 3 } else { 4 };
    }
    row.fare = -i64::from(trip.metered);
    for amount in [
        &mut row.extra,
        &mut row.mta_tax,
        &mut row.tolls,
        &mut row.improvement,
        &mut row.congestion,
        &mut row.airport_fee,
    ] {
        *amount = -*amount;
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use crate::sample::buckets::{choose, fill};

    fn group(cents: i64) -> Group {
        let places = choose(1, 474_096..474_264, 500);
        Group::new(fill(1, &places, 20_000), cents)
    }

    #[test]
    fn the_revenue_is_exact_and_plausible() {
        let mut trips = Vec::new();
        group(53_123_457)
            .for_each_trip(&mut |t| {
                trips.push(*t);
                Ok(())
            })
            .unwrap();
        assert_eq!(trips.iter().map(PricedTrip::total).sum::<i64>(), 53_123_457);
        assert_eq!(trips.len(), 20_000);
        let refunds = trips.iter().filter(|t| t.total() < 0).count();
        assert!((150..350).contains(&refunds), "{refunds} refunds");
        let unknown = trips.iter().filter(|t| t.passengers.is_none()).count();
        assert!((800..1_200).contains(&unknown), "{unknown} rows without passengers");
        assert!(trips.iter().all(|t| t.dropoff > t.pickup && t.total().abs() < 40_000 && t.total().abs() > 300));
        let mut disorder = 0;
        for pair in trips.windows(2) {
            disorder += usize::from(pair[0].pickup > pair[1].pickup);
            assert!(pair[0].pickup < pair[1].pickup + 3_600, "the order of the hours");
        }
        assert!(disorder > 1_000, "rows are only roughly in order");
    }

    #[test]
    fn too_little_money_is_an_error() {
        let refused = group(1_000).for_each_trip(&mut |_| Ok(())).unwrap_err().to_string();
        assert!(refused.starts_with("the revenue of 1000 cents is less than the "), "{refused}");
    }
}
