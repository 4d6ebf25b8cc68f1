//! Which pairs of pickup zone and pickup hour have trips, and how many.

use super::random::Random;
use std::ops::Range;

/// Taxi zones are numbered from 1 to this.
pub(super) const ZONES: u16 = 263;
/// The zones of the two airports.
pub(super) const AIRPORTS: [u16; 2] = [132, 138];

/// A pickup zone in a pickup hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// In hours since 1970, by the clock on the wall.
    pub(super) hour: i64,
    pub(super) zone: u16,
}

/// A place with its trips, at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) place: Place,
    pub(super) trips: u32,
}

/// The busiest zones, the first the busiest.
const BUSY: [u16; 66] = [
    132, 161, 237, 236, 162, 138, 186, 230, 142, 170, 239, 163, 234, 68, 48, 141, 79, 164, 107, 249, 140, 238, 263,
    229, 90, 43, 100, 231, 246, 137, 262, 113, 233, 114, 143, 50, 144, 211, 148, 158, 151, 75, 87, 166, 13, 74, 24,
    224, 125, 88, 41, 261, 45, 209, 116, 65, 232, 7, 244, 33, 42, 152, 243, 112, 226, 145,
];

/// How busy each hour of a day is, in percent, on working days and at the weekend.
const HOURS: [[u32; 24]; 2] = [
    [38, 22, 14, 9, 8, 10, 25, 52, 71, 73, 74, 79, 85, 88, 95, 97, 96, 106, 112, 97, 87, 88, 80, 62],
    [86, 74, 60, 42, 26, 11, 13, 20, 32, 49, 66, 78, 86, 88, 89, 90, 89, 93, 98, 90, 79, 77, 79, 74],
];

/// The hour of 2024-03-10 that summer time skips.
const SKIPPED_HOUR: i64 = 475_010;

/// Chooses exactly so many places of these hours, busy ones first of all, in order of hour and zone.
pub(super) fn choose(stream: u64, hours: Range<i64>, places: u64) -> Vec<Place> {
    let zones = zone_weights();
    let mut random = Random::stream([1, stream]);
    // Priority sampling: the lower the draw and the larger the weight, the sooner a place is taken.
    let mut drawn: Vec<(u64, Place)> = Vec::with_capacity(hours.clone().count() * usize::from(ZONES));
    for hour in hours.filter(|h| *h != SKIPPED_HOUR) {
        for zone in 1..=ZONES {
            let weight = u64::from(zones[usize::from(zone)]) * u64::from(hour_weight(hour));
            drawn.push((random.next() / weight, Place { hour, zone }));
        }
    }
    drawn.sort_unstable();
    let mut places: Vec<Place> = drawn.into_iter().take(places as usize).map(|(_, place)| place).collect();
    places.sort_unstable();
    places
}

/// Spreads exactly so many trips over the places, most to the busiest and at least one to each.
pub(super) fn fill(stream: u64, places: &[Place], trips: u64) -> Vec<Bucket> {
    let zones = zone_weights();
    let mut random = Random::stream([2, stream]);
    let weights: Vec<u64> = places
        .iter()
        .map(|p| u64::from(zones[usize::from(p.zone)] * hour_weight(p.hour)) * u64::from(60 + random.below(80)))
        .collect();
    let all: u64 = weights.iter().sum();
    let spare = trips - places.len() as u64;
    let share = |weight: u64| u128::from(spare) * u128::from(weight) / u128::from(all);
    let mut so_far = 0;
    let extra = weights.iter().map(|weight| {
        let given = share(so_far);
        so_far += weight;
        (share(so_far) - given) as u32
    });
    places.iter().zip(extra).map(|(place, extra)| Bucket { place: *place, trips: 1 + extra }).collect()
}

/// A table of zones in which each occurs as often as its weight says, to draw from.
pub(super) fn zone_table() -> Vec<u16> {
    let weights = zone_weights();
    let all: u32 = weights.iter().sum();
    let mut so_far = 0;
    let mut table = Vec::with_capacity(1 << 12);
    for (zone, weight) in (0..).zip(weights) {
        so_far += weight;
        table.resize((so_far as usize) * (1 << 12) / all as usize, zone);
    }
    table
}

fn zone_weights() -> Vec<u32> {
    let mut quiet = Random::stream([3, 0]);
    let mut weights: Vec<u32> = (0..=ZONES).map(|_| 10 + quiet.below(150)).collect();
    weights[0] = 0;
    for (rank, zone) in (0..).zip(BUSY) {
        weights[usize::from(zone)] = 100_000 / (rank + 9);
    }
    weights
}

/// How busy an hour since 1970 is, in percent.
fn hour_weight(hour: i64) -> u32 {
    // 1970-01-01 was a Thursday, so day 2 was a Saturday.
    let weekend = matches!(hour.div_euclid(24).rem_euclid(7), 2 | 3);
    HOURS[usize::from(weekend)][hour.rem_euclid(24) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_trips_are_exact_and_skewed() {
        let hours = 474_792..475_536;
        let places = choose(9, hours.clone(), 20_000);
        let distinct: std::collections::BTreeSet<Place> = places.iter().copied().collect();
        assert_eq!((places.len(), distinct.len()), (20_000, 20_000));
        assert!(places.iter().all(|p| hours.contains(&p.hour) && p.hour != SKIPPED_HOUR && p.zone <= ZONES));

        let buckets = fill(9, &places, 500_000);
        assert_eq!(buckets.iter().map(|b| u64::from(b.trips)).sum::<u64>(), 500_000);
        assert!(buckets.iter().all(|b| b.trips >= 1));
        let of = |zone| buckets.iter().filter(|b| b.place.zone == zone).map(|b| b.trips).sum::<u32>();
        assert!(of(132) > 10 * of(1).max(1), "an airport has {} trips, a quiet zone {}", of(132), of(1));
    }

    #[test]
    fn weekends_are_known() {
        let monday = 473_352; // 2024-01-01 00:00
        assert_eq!([0, 5, 6, 7].map(|day| hour_weight(monday + 24 * day)), [38, 86, 86, 38]);
    }
}
