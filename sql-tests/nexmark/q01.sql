-- Currency conversion.
SELECT auction, bidder, '0.908'::numeric(4,3) * price AS price, date_time, extra FROM bid
