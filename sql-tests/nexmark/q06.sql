-- Average selling price of a seller's last ten closed auctions.
SELECT seller, auction,
       avg(final) OVER (PARTITION BY seller ORDER BY date_time, auction ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS avg_final
FROM (
    SELECT a.id AS auction, a.seller, b.price AS final, b.date_time,
           row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.bidder) AS place
    FROM auction a JOIN bid b ON a.id = b.auction
    WHERE b.date_time BETWEEN a.date_time AND a.expires) AS winners
WHERE place = 1
