SELECT p.id, p.name, p.starttime
FROM (
    SELECT id, name, date_bin(INTERVAL '10 seconds', date_time) AS starttime
    FROM person
    GROUP BY id, name, date_bin(INTERVAL '10 seconds', date_time)) AS p
JOIN (
    SELECT seller, date_bin(INTERVAL '10 seconds', date_time) AS starttime
    FROM auction
    GROUP BY seller, date_bin(INTERVAL '10 seconds', date_time)) AS a
ON p.id = a.seller AND p.starttime = a.starttime
