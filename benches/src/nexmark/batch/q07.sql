SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM bid b
JOIN (
    SELECT max(price) AS maxprice, date_bin(INTERVAL '10 seconds', date_time) + INTERVAL '10 seconds' AS date_time
    FROM bid
    GROUP BY date_bin(INTERVAL '10 seconds', date_time)) AS b1
ON b.price = b1.maxprice
WHERE b.date_time BETWEEN b1.date_time - INTERVAL '10 seconds' AND b1.date_time
