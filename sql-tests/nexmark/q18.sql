-- Last bid of a bidder at an auction.
SELECT auction, bidder, price, channel, url, date_time, extra
FROM (
    SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS rank_number
    FROM bid) AS ranked
WHERE rank_number <= 1
