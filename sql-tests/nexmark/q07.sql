-- Highest bid of every ten seconds.
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM bid b
JOIN (
    SELECT max(price) AS maxprice, window_end AS date_time
    FROM TUMBLE(bid, date_time, INTERVAL '10 seconds')
    GROUP BY window_start, window_end) AS b1
ON b.price = b1.maxprice
WHERE b.date_time BETWEEN b1.date_time - INTERVAL '10 seconds' AND b1.date_time
